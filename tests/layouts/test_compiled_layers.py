"""Layers compiled in place: no graph break, and the numbers of one process without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from layout_step import Alone, assert_within, run_all

from specc.runtime.layouts import parse_layouts
from specc.runtime.one_step import Case

CASES = [
    ("llama", "one process"),
    ("llama", "tp2"),
    ("llama", "tp2 sp"),
    ("llama", "dp2"),
    ("learned", "tp2 sp"),
]


@pytest.mark.parametrize(("page", "layout"), CASES, ids=str)
def test_page(
    ranks: Callable[..., list[Any]],
    alone: Callable[..., Alone],
    page: str,
    layout: str,
) -> None:
    (degrees,) = parse_layouts(layout)
    case = Case(degrees, compiled=True)
    assert_within(ranks(degrees.size, run_all, [alone(page)], [case]), 1e-5)
