"""A hybrid stack of every kind of layer equals one process at each layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pipeline_step import Layout
from routed_step import alone, assert_equal, steps

LAYOUTS = {
    2: [
        Layout(tp=2),
        Layout(tp=2, sequence_parallel=True, ep=2, etp=1),
        Layout(cp=2, ep=2),
        Layout(accumulation=2, ep=2, zero=3),
        Layout(pp=2),
        Layout(pp=2, schedule="zbv"),
        Layout(pp=2, layers_per_stage=(4, 2), recompute="full"),
    ],
    4: [
        Layout(tp=2, sequence_parallel=True, pp=2, ep=2, etp=1),
        Layout(tp=2, cp=2, ep=4, etp=1, recompute="full"),
    ],
}
PACKED = [  # documents: a state begins anew with each
    Layout(tp=2, sequence_parallel=True, packed=True),
    Layout(cp=2, packed=True),
    Layout(pp=2, packed=True),
]


@pytest.fixture(scope="module")
def file(page_file: Callable[[str], Path]) -> str:
    return str(page_file("hybrid"))


alone_of = cache(lambda file, packed: alone(file, {}, packed=packed))


@pytest.mark.parametrize(
    ("size", "layouts"), [*LAYOUTS.items(), (2, PACKED)], ids=["2", "4", "packed"]
)
def test_every_layout(
    ranks: Callable[..., list[Any]], file: str, size: int, layouts: list[Layout]
) -> None:
    values, one = alone_of(file, layouts[0].packed)
    assert "router load_balancing_loss" in one
    for rank, found in enumerate(ranks(size, steps, file, {}, layouts, values)):
        for layout, got in zip(layouts, found, strict=True):
            assert_equal(got, one, rank, layout)
