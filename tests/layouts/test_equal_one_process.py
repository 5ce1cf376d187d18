"""A page at every kind of layout equals one process: loss, outputs, every gradient, their norm.

Initial values are the same bit for bit, the rest to float32 rounding. These are some of the mixes,
each axis and kind with each other; all of them are what `specc verify --all` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from layout_pages import PAGES
from layout_step import Alone, assert_within, run_all

from specc.runtime.layouts import parse_layouts
from specc.runtime.one_step import CLOSE, Case

LAYOUTS = {  # by the number of processes
    1: "zero3",
    2: (
        "tp2, tp2 sp, tp2 sp zero3, dp2 zero0, dp2 zero1, dp2 zero2, dp2, dp2 replicate2,"
        "cp2:all_gather, cp2:p2p zero1, cp2:a2a zero2"
    ),
    4: (
        "tp4, tp4 sp, tp2 dp2, tp2 sp dp2 zero1, tp2 sp dp2 replicate2, dp4 replicate2 zero2,"
        "tp2 cp2:all_gather, tp2 sp cp2:p2p, tp2 sp cp2:a2a zero2, cp2:p2p dp2 replicate2,"
        "cp2:a2a dp2 zero1, cp4:all_gather zero2, cp4:p2p, cp4:a2a zero1"
    ),
}
# The user's class attends by itself over the places of its rank: it cannot be cut over cp.
NO_CP = {"user"}
NO_DOCUMENTS = {"user", "seed"}  # forward takes no positions


@pytest.mark.parametrize("size", LAYOUTS)
@pytest.mark.parametrize("page", PAGES)
def test_page(
    ranks: Callable[..., list[Any]], alone: Callable[..., Alone], page: str, size: int
) -> None:
    """Whole sequences at once, and packed ones in two micro-batches, in turn."""
    layouts = [d for d in parse_layouts(LAYOUTS[size]) if d.cp == 1 or page not in NO_CP]
    if size == 4:
        layouts = layouts[list(PAGES).index(page) % 2 :: 2]  # every layout has three of the pages
    cases = [
        Case(degrees, accumulation=parts, packed=parts == 2 and page not in NO_DOCUMENTS)
        for number, degrees in enumerate(layouts)
        for parts in ((1, 2) if size == 1 else (1 + number % 2,))
    ]
    ones = [alone(page, packed=case.packed) for case in cases]
    assert_within(ranks(size, run_all, ones, cases), CLOSE)
