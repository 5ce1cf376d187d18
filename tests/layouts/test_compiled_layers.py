"""Layers compiled in place: no graph break, and the numbers of one process without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from layout_step import Alone, Case, assert_within, run_all

CASES = [
    ("llama", 1, Case(compiled=True)),
    ("llama", 2, Case(tp=2, compiled=True)),
    ("llama", 2, Case(tp=2, sequence_parallel=True, compiled=True)),
    ("llama", 2, Case(fsdp=True, compiled=True)),
    ("learned", 2, Case(tp=2, sequence_parallel=True, compiled=True)),
]


@pytest.mark.parametrize(("page", "size", "case"), CASES, ids=str)
def test_page(
    ranks: Callable[..., list[Any]],
    alone: Callable[..., Alone],
    page: str,
    size: int,
    case: Case,
) -> None:
    one = alone(page)
    assert_within(ranks(size, run_all, one.text, [case], one.file), 1e-5)
