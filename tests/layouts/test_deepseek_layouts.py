"""A DeepSeek-V3 shape equals one process at each layout: loss, gradients, routers, biases."""

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
        Layout(cp=2),
        Layout(accumulation=2, ep=2, zero=3),
        Layout(pp=2, schedule="zbv"),
    ],
    4: [
        Layout(tp=2, sequence_parallel=True, pp=2, ep=2, etp=1),
        Layout(tp=2, cp=2, ep=4, etp=1, recompute="full"),
        Layout(pp=2, accumulation=2, ep=2, schedule="gpipe"),
    ],
}


@pytest.fixture(scope="module")
def file(page_file: Callable[[str], Path]) -> str:
    return str(page_file("deepseek"))


alone_of = cache(lambda file: alone(file, {}))


@pytest.mark.parametrize("size", LAYOUTS)
def test_every_layout(ranks: Callable[..., list[Any]], file: str, size: int) -> None:
    values, one = alone_of(file)
    assert {"router mtp_loss", "router seq_load_balancing_loss"} <= one.keys()
    for rank, found in enumerate(ranks(size, steps, file, {}, LAYOUTS[size], values)):
        for layout, got in zip(LAYOUTS[size], found, strict=True):
            assert_equal(got, one, rank, layout)
