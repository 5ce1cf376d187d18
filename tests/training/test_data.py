"""The loader: every position once an epoch, the same global batches at any layout."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.data import (
    IGNORED,
    Layout,
    MicroBatch,
    SequenceSet,
    Stream,
    fingerprint,
    held_out_batches,
    split,
    training_batches,
)
from specc.runtime.refusal import Refusal

lengths = st.integers(1, 9)


def counted(sequences: SequenceSet, batches: list[MicroBatch]) -> Counter[int]:
    """How often each position's label was read; token i of the text is the number i."""
    seen: Counter[int] = Counter()
    for batch in batches:
        assert torch.equal(batch.input_ids[:, 1:], batch.input_ids[:, :-1] + 1)
        used = batch.labels != IGNORED
        assert torch.equal(batch.labels[used], batch.input_ids[used] + 1)
        seen.update(batch.labels[used].tolist())
    return seen


@given(lengths, st.integers(0, 60), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_an_epoch_reads_each_position_once(
    length: int, more: int, micro: int, accumulation: int, dp: int
) -> None:
    sequences = SequenceSet(torch.arange(length + 1 + more), length)
    stream = Stream(len(sequences), seed=3)
    ranks = [Layout(micro, accumulation, dp, rank) for rank in range(dp)]
    total = ranks[0].global_batch
    # So many whole epochs that global batches come out even.
    steps = len(sequences)
    batches = [
        batch
        for step in range(steps)
        for layout in ranks
        for batch in training_batches(sequences, stream, layout, step * total)
    ]
    seen = counted(sequences, batches)
    assert seen == dict.fromkeys(range(1, length + 1 + more), total)


@given(
    st.sampled_from([(1, 12, 1), (2, 3, 2), (3, 4, 1), (1, 3, 4), (4, 1, 3)]), st.integers(0, 50)
)
@settings(max_examples=60, deadline=None)
def test_layouts_read_the_same_global_batches(shape: tuple[int, int, int], position: int) -> None:
    micro, accumulation, dp = shape
    sequences = SequenceSet(torch.arange(100), 4)
    stream = Stream(len(sequences), seed=1)
    (whole,) = training_batches(sequences, stream, Layout(12, 1), position)
    for rank in range(dp):
        layout = Layout(micro, accumulation, dp, rank)
        for batch in training_batches(sequences, stream, layout, position):
            rows = slice(batch.first_sequence, batch.first_sequence + micro)
            assert torch.equal(batch.input_ids, whole.input_ids[rows])
            assert torch.equal(batch.labels, whole.labels[rows])


@given(lengths, st.integers(0, 40), st.integers(1, 3), st.integers(1, 4), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_held_out_batches_agree_at_any_layout(
    length: int, more: int, micro: int, dp: int, count: int
) -> None:
    sequences = SequenceSet(torch.arange(length + 1 + more), length)
    ranks = [
        list(held_out_batches(sequences, Layout(micro, 1, dp, rank), count)) for rank in range(dp)
    ]
    assert len({len(batches) for batches in ranks}) == 1  # they communicate in step
    seen = counted(sequences, [batch for batches in ranks for batch in batches])
    alone = counted(sequences, list(held_out_batches(sequences, Layout(1, 1), count)))
    assert seen == alone
    assert set(seen.values()) == {1}


def test_the_order_is_a_permutation_of_each_epoch_and_seeded() -> None:
    stream = Stream(50, seed=0)
    epochs = [[stream[epoch * 50 + i] for i in range(50)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [Stream(50, seed=0)[i] for i in range(50)] == epochs[0]
    assert [Stream(50, seed=1)[i] for i in range(50)] != epochs[0]
    # A resumed run begins anywhere, in any epoch.
    assert [Stream(50, seed=0)[120 + i] for i in range(10)] == epochs[2][20:30]


def test_the_held_out_tail_is_apart_and_a_sequence_long() -> None:
    training, held_out = split(torch.arange(1000), 8, 0.1)
    assert held_out is not None
    assert training.tokens.tolist() + held_out.tokens.tolist() == list(range(1000))
    assert len(held_out.tokens) == 100
    assert split(torch.arange(1000), 8, 0.0)[1] is None
    _, small = split(torch.arange(40), 8, 0.05)
    assert small is not None and len(small.tokens) == 9


@pytest.mark.parametrize(
    ("tokens", "fraction", "numbers"),
    [(0, 0.0, ("0", "8")), (8, 0.0, ("8 tokens", "9")), (17, 0.05, ("17 tokens", "9"))],
)
def test_a_short_text_is_refused(tokens: int, fraction: float, numbers: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as refusal:
        split(torch.arange(tokens), 8, fraction)
    assert all(number in str(refusal.value) for number in numbers)


def test_the_fingerprint_sees_every_token() -> None:
    tokens = torch.arange(200, dtype=torch.uint8)
    other = tokens.clone()
    other[150] += 1
    assert fingerprint(tokens) == fingerprint(tokens.clone())
    assert len({fingerprint(tokens), fingerprint(other), fingerprint(tokens.int())}) == 3
