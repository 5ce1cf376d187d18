"""A permutation computed per index: a bijection, seeded, the same everywhere."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.permutation import Permutation, number

keys = st.tuples(st.integers(0, 2**40), st.integers(0, 1000))


@given(st.integers(1, 1500), keys)
@settings(max_examples=100, deadline=None)
def test_every_number_comes_once(count: int, key: tuple[int, int]) -> None:
    permutation = Permutation(count, *key)
    assert sorted(permutation[i] for i in range(count)) == list(range(count))


@given(st.integers(10**6, 2**62), keys, st.integers(0, 2**62))
@settings(max_examples=100, deadline=None)
def test_neighbours_stay_apart_in_a_large_one(count: int, key: tuple[int, int], at: int) -> None:
    permutation = Permutation(count, *key)
    places = range(at % (count - 64), at % (count - 64) + 64)
    found = [permutation[i] for i in places]
    assert len(set(found)) == 64
    assert all(0 <= place < count for place in found)
    assert found != sorted(found)


def test_each_index_comes_to_each_place_as_often() -> None:
    count, turns = 5, 4000
    seen = [[0] * count for _ in range(count)]
    for epoch in range(turns):
        permutation = Permutation(count, "epoch", 0, epoch)
        for index in range(count):
            seen[index][permutation[index]] += 1
    # 800 each, standard deviation 25: six of them are allowed.
    assert all(abs(times - turns / count) < 150 for row in seen for times in row)


def test_two_neighbours_are_as_good_as_independent() -> None:
    """Of a large permutation: how often one's successor is larger, and their correlation."""
    count, size = 1000, 10**9 + 7
    permutation = Permutation(size, "epoch", 3, 0)
    values = [permutation[i] / size for i in range(count + 1)]
    pairs = list(pairwise(values))
    mean = sum(values) / len(values)
    variance = sum((a - mean) ** 2 for a in values) / len(values)
    correlation = sum((a - mean) * (b - mean) for a, b in pairs) / len(pairs) / variance
    assert abs(mean - 0.5) < 0.05 and abs(variance - 1 / 12) < 0.01  # five deviations
    assert abs(correlation) < 0.16  # 5 / sqrt(1000)


def test_epochs_and_seeds_differ() -> None:
    orders = {
        tuple(Permutation(50, "epoch", seed, epoch)[i] for i in range(50))
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(orders) == 16


def test_it_is_the_same_in_every_process_and_version() -> None:
    """A position in a checkpoint's stream depends on it; Python's own hashes are salted."""
    found = [Permutation(1000, "epoch", 7, 0, 2)[i] for i in range(8)]
    assert found == [683, 975, 265, 729, 335, 895, 150, 641]


def test_indices_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="of 0 things"):
        Permutation(0)
    for index in (-1, 3):
        with pytest.raises(IndexError, match="of 3"):
            Permutation(3)[index]


def test_a_number_depends_on_all_its_parts() -> None:
    assert len({number(a, b) for a in range(20) for b in range(20)}) == 400
    assert number(1, 23) != number(12, 3)
