"""The loader: every position once an epoch, the same global batches at any layout."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.data import IGNORED, Layout, MicroBatch, SequenceSet, Stream
from specc.runtime.data_open import Data, cut_tail, open_data
from specc.runtime.data_sources import HeldTokens, Source
from specc.runtime.indexed_writer import IndexedWriter
from specc.runtime.packing import Packing
from specc.runtime.refusal import Refusal

lengths = st.integers(1, 9)


def data_of(
    *sets: torch.Tensor,
    length: int,
    weights: Sequence[float] = (1.0,),
    fraction: float = 0.0,
    seed: int = 3,
) -> Data:
    sources = [
        Source(HeldTokens(tokens), f"{which}", None, None, int(tokens.max()))
        for which, tokens in enumerate(sets)
    ]
    return Data(
        sources,
        weights,
        length=length,
        seed=seed,
        valid_fraction=fraction,
        packings=[Packing()] * len(sets),
    )


def counted(batches: list[MicroBatch]) -> Counter[int]:
    """How often each position's label was read; token i of the text is the number i."""
    seen: Counter[int] = Counter()
    for batch in batches:
        assert torch.equal(batch.input_ids[:, 1:], batch.input_ids[:, :-1] + 1)
        used = batch.labels != IGNORED
        assert torch.equal(batch.labels[used], batch.input_ids[used] + 1)
        seen.update(batch.labels[used].tolist())
    return seen


@given(lengths, st.integers(0, 60), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_an_epoch_reads_each_position_once(
    length: int, more: int, micro: int, accumulation: int, dp: int
) -> None:
    data = data_of(torch.arange(length + 1 + more), length=length)
    ranks = [Layout(micro, accumulation, dp, rank) for rank in range(dp)]
    total = ranks[0].global_batch
    # So many whole epochs that global batches come out even.
    steps = data.count
    batches = [
        batch
        for step in range(steps)
        for layout in ranks
        for batch in data.training_batches(layout, step * total)
    ]
    assert counted(batches) == dict.fromkeys(range(1, length + 1 + more), total)


@given(
    st.sampled_from([(1, 12, 1), (2, 3, 2), (3, 4, 1), (1, 3, 4), (4, 1, 3)]), st.integers(0, 50)
)
@settings(max_examples=60, deadline=None)
def test_layouts_read_the_same_global_batches(shape: tuple[int, int, int], position: int) -> None:
    micro, accumulation, dp = shape
    data = data_of(torch.arange(100), torch.arange(100, 150), length=4, weights=(0.6, 0.4))
    (whole,) = data.training_batches(Layout(12, 1), position)
    for rank in range(dp):
        for batch in data.training_batches(Layout(micro, accumulation, dp, rank), position):
            rows = slice(batch.first_sequence, batch.first_sequence + micro)
            assert torch.equal(batch.input_ids, whole.input_ids[rows])
            assert torch.equal(batch.labels, whole.labels[rows])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_run_that_changes_its_layout_in_an_epoch_reads_on(
    parts: list[tuple[int, int, int]],
) -> None:
    """Stopped after any step and resumed at other sizes: each sequence comes in its turn."""
    text = torch.arange(400)
    position, read = 0, []
    for dp, micro, accumulation in parts:
        data = data_of(text, length=4)  # nothing is kept but the position
        rows: dict[int, list[int]] = {}
        for rank in range(dp):
            for batch in data.training_batches(Layout(micro, accumulation, dp, rank), position):
                for row, ids in enumerate(batch.input_ids.tolist()):
                    rows[batch.first_sequence + row] = ids
        read += [rows[i] for i in range(dp * micro * accumulation)]
        position += dp * micro * accumulation
    alone = data_of(text, length=4)
    assert read == [
        alone.training_batches(Layout(1, 1), place)[0].input_ids[0].tolist()
        for place in range(position)
    ]


@given(lengths, st.integers(0, 40), st.integers(1, 3), st.integers(1, 4), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_held_out_batches_agree_at_any_layout(
    length: int, more: int, micro: int, dp: int, count: int
) -> None:
    text = torch.arange(2 * (length + 1 + more))
    data = data_of(text, length=length, fraction=0.5)
    ranks = [list(data.held_out_batches(Layout(micro, 1, dp, rank), count)) for rank in range(dp)]
    assert len({len(batches) for batches in ranks}) == 1  # they communicate in step
    seen = counted([batch for batches in ranks for batch in batches])
    assert seen == counted(list(data.held_out_batches(Layout(1, 1), count)))
    assert set(seen.values()) == {1}
    assert min(seen) > length + 1 + more  # of the tail
    every = counted(list(data.held_out_batches(Layout(micro, 1), 1000)))
    assert len(every) == length + more


def test_the_order_is_a_permutation_of_each_epoch_and_seeded() -> None:
    stream = Stream(50, seed=0)
    epochs = [[stream[epoch * 50 + i] for i in range(50)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [Stream(50, seed=0)[i] for i in range(50)] == epochs[0]
    assert [Stream(50, seed=1)[i] for i in range(50)] != epochs[0]
    assert [Stream(50, seed=0, which=1)[i] for i in range(50)] != epochs[0]
    # A resumed run begins anywhere, in any epoch.
    assert [Stream(50, seed=0)[120 + i] for i in range(10)] == epochs[2][20:30]


def test_sets_of_a_blend_have_epochs_of_their_own() -> None:
    small, large = torch.arange(21), torch.arange(1000, 1401)  # 5 and 100 sequences
    data = data_of(small, large, length=4, weights=(1.0, 3.0))
    assert data.count == 105
    (batch,) = data.training_batches(Layout(120, 1), 0)
    firsts = batch.input_ids[:, 0].tolist()
    ours = [first for first in firsts if first < 1000]
    assert len(ours) == 30  # a quarter: six epochs
    epochs = [ours[i : i + 5] for i in range(0, 30, 5)]
    assert all(sorted(epoch) == [0, 4, 8, 12, 16] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert len(set(firsts) - set(ours)) == 90  # of the other's first epoch


def test_held_out_parts_of_a_blend_end_with_the_first_of_them() -> None:
    sets = torch.arange(90), torch.arange(1000, 1400)
    data = data_of(*sets, length=4, weights=(1.0, 1.0), fraction=0.1)
    assert data.held_out_count == 4  # the small one holds out 2 sequences, and every other is its
    seen = counted(list(data.held_out_batches(Layout(2, 1), 100)))
    assert set(seen.values()) == {1}
    assert sum(label < 1000 for label in seen) == 8


def test_the_held_out_tail_is_apart_and_a_sequence_long() -> None:
    tokens = HeldTokens(torch.arange(1000))
    training, held_out = cut_tail(tokens, 8, 0.1)
    assert held_out is not None
    assert (training.begin, training.end, held_out.begin, held_out.end) == (0, 900, 900, 1000)
    assert cut_tail(tokens, 8, 0.0)[1] is None
    _, small = cut_tail(HeldTokens(torch.arange(40)), 8, 0.05)
    assert small is not None and small.end - small.begin == 9


@pytest.mark.parametrize(
    ("tokens", "fraction", "numbers"),
    [(0, 0.0, ("0", "8")), (8, 0.0, ("8 tokens", "9")), (17, 0.05, ("17 tokens", "9"))],
)
def test_a_short_text_is_refused(tokens: int, fraction: float, numbers: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as refusal:
        cut_tail(HeldTokens(torch.arange(tokens)), 8, fraction)
    assert all(number in str(refusal.value) for number in numbers)


def test_a_token_beyond_the_vocabulary_is_refused_when_it_is_read() -> None:
    data = data_of(torch.tensor([1, 2, 3, 50, 4, -1, 5, 6, 7]), length=2)
    rows = [data.training_batches(Layout(1, 1), place)[0].input_ids.tolist() for place in range(4)]
    bad = rows.index([[3, 50]])
    data.refuse_from(50)
    with pytest.raises(Refusal, match="Tokens 2 to 4 hold token 50, and the vocabulary ends at 49"):
        data.training_batches(Layout(1, 1), bad)
    data.refuse_from(51)
    data.training_batches(Layout(1, 1), bad)
    with pytest.raises(Refusal, match="Tokens 4 to 6 hold token -1"):
        data.training_batches(Layout(4, 1), 0)


def token_files(prefix: Path, documents: list[list[int]]) -> Path:
    with IndexedWriter(prefix, torch.int32) as writer:
        for document in documents:
            tokens = torch.tensor(document, dtype=torch.int32).numpy().tobytes()
            writer.add(tokens, [len(document)])
        writer.finish()
    return prefix


def test_text_and_token_files_and_folders_of_them_are_opened(tmp_path: Path) -> None:
    documents = [list(range(0, 30)), list(range(30, 41)), [], list(range(41, 60))]
    both = token_files(tmp_path / "whole" / "text", documents)
    token_files(tmp_path / "parts" / "b", documents[1:])
    token_files(tmp_path / "parts" / "a", documents[:1])
    (tmp_path / "plain.txt").write_bytes(bytes(range(60)))

    def batch(path: Path, packed: bool) -> MicroBatch:
        data = open_data([(1.0, path)], length=8, seed=0, valid_fraction=0.2, packed=packed)
        assert data.largest == 59
        (found,) = data.training_batches(Layout(data.count, 1), 0)
        return found

    for packed in (False, True):
        one = batch(both, packed)
        for path in (both.with_name("text.bin"), both.with_name("text.idx"), tmp_path / "parts"):
            other = batch(path, packed)
            assert torch.equal(one.input_ids, other.input_ids)
            assert torch.equal(one.labels, other.labels)
            assert (one.starts is not None) == packed
            assert one.starts is None or torch.equal(one.starts, other.starts)
    text = batch(tmp_path / "plain.txt", False)
    assert torch.equal(text.input_ids, batch(both, False).input_ids)
    assert text.starts is None


def test_the_identity_tells_apart_what_changes_the_stream(tmp_path: Path) -> None:
    one = token_files(tmp_path / "one", [list(range(100))])
    two = token_files(tmp_path / "two", [list(range(50)), list(range(50, 100))])

    def identity(*paths: tuple[float, Path], length: int = 8, fraction: float = 0.1) -> str:
        return open_data(list(paths), length=length, seed=0, valid_fraction=fraction).identity

    found = [
        identity((1.0, one)),
        identity((1.0, two)),
        identity((1.0, one), length=16),
        identity((1.0, one), fraction=0.3),
        identity((1.0, one), (1.0, two)),
        identity((2.0, one), (1.0, two)),
        identity((1.0, two), (1.0, one)),
    ]
    assert len(set(found)) == len(found)
    assert found[0] == identity((1.0, one))
    assert found[0].endswith(" of 100 tokens in 12 sequences")


def test_folders_that_say_two_things_are_refused(tmp_path: Path) -> None:
    token_files(tmp_path / "a", [[1, 2, 3]])
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(Refusal, match=r"holds 1 token files and the text notes\.txt"):
        open_data([(1.0, tmp_path)], length=2, seed=0)
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(Refusal, match="is parquet: specc tokenize makes token files of it"):
        open_data([(1.0, tmp_path / "b.parquet")], length=2, seed=0)
    with pytest.raises(Refusal, match="no file or folder"):
        open_data([(1.0, tmp_path / "none")], length=2, seed=0)


@given(lengths, st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_the_last_sequence_ends_with_the_text(length: int, more: int) -> None:
    sequences = SequenceSet(torch.arange(length + 1 + more), length)
    row = sequences[len(sequences) - 1]
    assert int(row.ids[-1]) == length + more - 1
    assert row.labels[row.labels != IGNORED].tolist()[-1] == length + more
    with pytest.raises(IndexError, match=f"of {len(sequences)}"):
        sequences[len(sequences)]
