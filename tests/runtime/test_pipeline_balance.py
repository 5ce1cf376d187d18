"""The layers of each stage."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specc.runtime.pipeline_balance import by_cost, by_hand


@st.composite
def shares(draw: st.DrawFn) -> tuple[list[float], int, float, float]:
    costs = draw(st.lists(st.integers(1, 9).map(float), min_size=1, max_size=8))
    stages = draw(st.integers(1, len(costs)))
    return costs, stages, float(draw(st.integers(0, 9))), float(draw(st.integers(0, 20)))


@given(shares())
def test_no_cut_is_better(case: tuple[list[float], int, float, float]) -> None:
    """Against all cuts: the dearest stage is cheapest, and among such the squares sum to least."""
    costs, stages, first, last = case

    def prices(counts: tuple[int, ...]) -> tuple[float, float]:
        found, start = [], 0
        for count in counts:
            found.append(sum(costs[start : start + count]))
            start += count
        found[0] += first
        found[-1] += last
        return max(found), sum(price**2 for price in found)

    every = [
        tuple(b - a for a, b in zip((0, *cuts), (*cuts, len(costs)), strict=True))
        for cuts in combinations(range(1, len(costs)), stages - 1)
    ]
    assert prices(by_cost(costs, stages, first, last)) == min(map(prices, every))


def test_the_head_is_weighed() -> None:
    assert by_cost([1.0] * 8, 4) == (2, 2, 2, 2)
    assert by_cost([1.0] * 8, 4, last=2.0) == (3, 2, 2, 1)
    assert by_cost([1.0] * 9, 4) == (3, 2, 2, 2)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="4 stages share out 3 layers"):
        by_cost([1.0] * 3, 4)
    with pytest.raises(ValueError, match="2 numbers for 3 stages"):
        by_hand((4, 4), 8, 3)
    with pytest.raises(ValueError, match="sum to 7, and there are 8 layers"):
        by_hand((4, 3), 8, 2)
    assert by_hand((8, 0), 8, 2) == (8, 0)
