"""Several sets in one stream: shares at every prefix, any position at once."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.blend import Blend
from specc.runtime.refusal import Refusal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of fused kernels that are not there
    from megatron.core.datasets import helpers

shares = st.lists(st.integers(1, 60), min_size=1, max_size=9)


def megatron(weights: list[float], size: int) -> list[int]:
    """The sets that its helper, written in C++, takes."""
    sets, samples = np.zeros(size, dtype=np.int16), np.zeros(size, dtype=np.int64)
    helpers.build_blending_indices(sets, samples, np.array(weights), len(weights), size, False)
    return [int(one) for one in sets]


def farthest(sets: list[int], parts: list[int]) -> Fraction:
    """How far any set is from its share of any prefix; ``parts``: shares of their sum."""
    whole = sum(parts)
    ahead, worst = [0] * len(parts), 0  # of the share, in parts of a sequence
    for which in sets:
        ahead = [have - part for have, part in zip(ahead, parts, strict=True)]
        ahead[which] += whole
        worst = max(worst, max(ahead), -min(ahead))
    return Fraction(worst, whole)


@given(shares)
@settings(max_examples=100, deadline=None)
def test_each_set_has_its_share_of_every_prefix_within_one(parts: list[int]) -> None:
    blend = Blend([float(part) for part in parts])
    sets = [blend[position][0] for position in range(2 * blend.period + 3)]
    assert farthest(sets, parts) < 1


@given(shares)
@settings(max_examples=100, deadline=None)
def test_each_set_is_asked_for_its_sequences_in_order(parts: list[int]) -> None:
    blend = Blend(list(map(float, parts)))
    asked = [0] * len(parts)
    for position in range(3 * blend.period):
        which, place = blend[position]
        assert place == asked[which]
        asked[which] += 1


@given(st.lists(st.integers(1, 31), min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_after_a_period_the_counts_are_those_of_megatron(parts: list[int]) -> None:
    # Of 64 parts: exact as floats, so its comparisons have no rounding in them.
    parts = [*parts, 64 - sum(parts)] if sum(parts) < 64 else [16, 48]
    blend = Blend([part / 64 for part in parts])
    theirs = megatron([part / 64 for part in parts], blend.period)
    ours = [blend[position][0] for position in range(blend.period)]
    counts = [theirs.count(which) for which in range(len(parts))]
    assert [ours.count(which) for which in range(len(parts))] == blend.shares
    if farthest(theirs, parts) < 1:
        assert counts == blend.shares


def test_megatrons_law_falls_behind_by_more_than_one_sequence() -> None:
    parts = [1, 40, 1, 3, 3, 1, 1]
    assert farthest(megatron([part / 50 for part in parts], 50), parts) > Fraction(3, 2)
    blend = Blend(list(map(float, parts)))
    assert farthest([blend[position][0] for position in range(50)], parts) < 1


def test_a_weight_is_the_number_that_was_typed() -> None:
    blend = Blend([0.7, 0.3])
    assert blend.period == 10 and blend.shares == [7, 3]
    assert blend[10**15] == (blend[0][0], 7 * 10**14)
    assert Blend([0.1, 0.1, 0.1]).shares == [1, 1, 1]
    assert Blend([5.0]).period == 1


@given(shares, st.data())
@settings(max_examples=100, deadline=None)
def test_whole_ends_before_a_set_is_asked_for_too_much(
    parts: list[int], data: st.DataObject
) -> None:
    blend = Blend(list(map(float, parts)))
    counts = [data.draw(st.integers(1, 90)) for _ in parts]
    end = blend.whole(counts)
    assert all(blend[position][1] < counts[blend[position][0]] for position in range(end))
    assert blend[end][1] == counts[blend[end][0]]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 0.0], "weight 0.0; weights are above 0"),
        ([1.0, -2.0], "weight -2.0"),
        ([1.0, float("nan")], "weight nan"),
        ([1.0, float("inf")], "weight inf"),
        ([0.12345671, 0.87654329], "repeat after 100,000,000 sequences, and at most 1,000,000"),
    ],
)
def test_what_is_no_weight_is_refused(weights: list[float], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        Blend(weights)
