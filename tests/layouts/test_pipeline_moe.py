"""Experts in a pipeline, at every schedule and shared out, equal one process that runs the data
parallel ranks' micro-batches one after another: loss, gradients, routers' losses and biases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pipeline_step import Layout
from routed_step import alone, assert_equal, steps

from specc.runtime.pipeline_schedules import SCHEDULES

PAGE = str(Path(__file__).with_name("moe_stack_page.py"))


alone_of = cache(lambda kind: alone(PAGE, {"kind": kind}))

LAYOUTS = {
    2: [Layout(pp=2, schedule=schedule) for schedule in SCHEDULES]
    + [Layout(pp=2, recompute="full")],
    4: [
        Layout(pp=2, accumulation=2),
        Layout(pp=2, accumulation=2, schedule="zbv", ep=2),
        Layout(pp=2, accumulation=2, zero=3, ep=2),
        Layout(pp=2, tp=2, ep=2, etp=1, schedule="interleaved"),
    ],
}


@pytest.mark.parametrize("size", LAYOUTS)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_experts_in_a_pipeline(ranks: Callable[..., list[Any]], kind: int, size: int) -> None:
    values, one = alone_of(kind)
    assert any(name.startswith("router") for name in one)
    changes = {"kind": kind}
    for rank, found in enumerate(ranks(size, steps, PAGE, changes, LAYOUTS[size], values)):
        for layout, got in zip(LAYOUTS[size], found, strict=True):
            assert_equal(got, one, rank, layout)
