"""Megatron's token files, with its own reader and writer on the other side."""

import json
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.runtime.indexed import DTYPES, IndexedTokens
from specc.runtime.indexed_writer import IndexedWriter, smallest_dtype
from specc.runtime.refusal import Refusal

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of fused kernels that are not there
    from megatron.core.datasets.indexed_dataset import (
        DType,
        IndexedDataset,
        IndexedDatasetBuilder,
    )

# A document is a list of sequences, a sequence a list of tokens; all of them may be empty.
Documents = list[list[list[int]]]
documents = st.lists(st.lists(st.lists(st.integers(0, 127), max_size=5), max_size=3), max_size=6)
kinds = st.sampled_from(sorted(DTYPES.values(), key=str))


def numpy_kind(kind: torch.dtype) -> Any:
    return getattr(np, str(kind).removeprefix("torch."))


def flat(document: list[list[int]]) -> list[int]:
    return [token for sequence in document for token in sequence]


def write_theirs(prefix: Path, texts: Documents, kind: torch.dtype) -> None:
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy_kind(kind))
    for document in texts:
        builder.add_document(torch.tensor(flat(document)), [len(part) for part in document])
    builder.finalize(f"{prefix}.idx")


def write_ours(prefix: Path, texts: Documents, kind: torch.dtype) -> None:
    with IndexedWriter(prefix, kind) as writer:
        for document in texts:
            stored = np.array(flat(document), dtype=numpy_kind(kind)).tobytes()
            writer.add_document(stored, [len(part) for part in document])
        writer.finish()


@given(documents, kinds)
@settings(max_examples=60, deadline=None)
def test_the_bytes_are_megatrons(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, kind: torch.dtype
) -> None:
    folder = tmp_path_factory.mktemp("both")
    write_theirs(folder / "theirs", texts, kind)
    write_ours(folder / "ours", texts, kind)
    for end in ("bin", "idx"):
        assert (folder / f"ours.{end}").read_bytes() == (folder / f"theirs.{end}").read_bytes()
    assert len(list(folder.iterdir())) == 4


@given(documents, kinds, st.data())
@settings(max_examples=60, deadline=None)
def test_what_megatron_wrote_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    texts: Documents,
    kind: torch.dtype,
    data: st.DataObject,
) -> None:
    prefix = tmp_path_factory.mktemp("theirs") / "text"
    write_theirs(prefix, texts, kind)
    ours = IndexedTokens(prefix)
    whole = [token for document in texts for token in flat(document)]
    sequences = [sequence for document in texts for sequence in document]
    assert (len(ours), ours.documents, ours.sequences) == (len(whole), len(texts), len(sequences))
    assert ours.dtype == kind
    assert [ours.sequence(i).tolist() for i in range(len(sequences))] == sequences
    assert ours.largest() == max(whole, default=-1)
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    assert ours.read(begin, end).tolist() == whole[begin:end]
    starts = [sum(len(flat(document)) for document in texts[:i]) for i in range(len(texts))]
    inside = [start for start in starts if begin <= start < end]
    assert ours.document_starts(begin, end).tolist() == inside


@given(st.lists(st.lists(st.integers(0, 60000), max_size=5), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_megatron_reads_what_we_wrote(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]
) -> None:
    prefix = tmp_path_factory.mktemp("ours") / "text"
    with IndexedWriter(prefix, torch.uint16) as writer:
        half = len(texts) // 2
        for part in (texts[:half], texts[half:]):  # as blocks come
            stored = np.array(flat(part), dtype=np.uint16).tobytes()
            writer.add(stored, [len(one) for one in part])
        writer.finish()
    if not flat(texts):
        return  # numpy maps no empty file
    theirs = IndexedDataset(str(prefix))
    assert [theirs[i].tolist() for i in range(len(theirs))] == texts
    assert theirs.document_indices.tolist() == list(range(len(texts) + 1))


@pytest.mark.parametrize("size", [256, 65499, 65500, 200_000])
def test_the_dtype_is_megatrons(size: int) -> None:
    assert numpy_kind(smallest_dtype(size)) == DType.optimal_dtype(size)


HEADER = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, 2, 3)
INDEX = HEADER + struct.pack("<2i2q3q", 2, 3, 0, 4, 0, 1, 2)  # documents of 2 and of 3 tokens


def altered(at: int, part: bytes) -> bytes:
    return INDEX[:at] + part + INDEX[at + len(part) :]


@pytest.mark.parametrize(
    ("index", "size", "words"),
    [
        (b"", 10, "has 0 bytes, and its header takes 34"),
        (INDEX[:20], 10, "has 20 bytes, and its header takes 34"),
        (altered(0, b"safeten"), 10, "no index of token files: it begins with b'safeten"),
        (altered(9, b"\x02"), 10, "has version 2; version 1 is supported"),
        (altered(17, b"\x07"), 10, r"dtype 7 \(float32\)"),
        (altered(17, b"\x06"), 10, r"dtype 6 \(float64\)"),
        (altered(17, b"\x09"), 10, r"dtype 9 \(unknown\).*8 \(uint16\)"),
        (INDEX[:-1], 10, "has 81 bytes where 2 sequences and 3 document bounds take 82"),
        (INDEX + b"\0" * 9, 10, "has 91 bytes where"),
        (INDEX + b"\0\1", 10, "a mode for each of its 2 sequences: it is a multimodal"),
        (INDEX, 8, "has 8 bytes where .*text.idx promises 10"),
        (INDEX, 12, "has 12 bytes where .*text.idx promises 10"),
        (altered(50, b"\x06"), 10, "sequence 1 has 3 tokens from byte 6, .* ends at byte 4"),
        (altered(34, b"\xff\xff\xff\xff"), 10, "sequence 0 has -1 tokens"),
        (altered(66, b"\x03"), 10, "document bounds do not rise from 0 to its 2 sequences"),
        (altered(74, b"\x03"), 10, "document bounds do not rise from 0 to its 2 sequences"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, index: bytes, size: int, words: str) -> None:
    (tmp_path / "text.idx").write_bytes(index)
    (tmp_path / "text.bin").write_bytes(b"\1" * size)
    with pytest.raises(Refusal, match=words):
        IndexedTokens(tmp_path / "text")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.idx").write_bytes(INDEX)
    with pytest.raises(Refusal, match=r"no file .*text\.bin"):
        IndexedTokens(tmp_path / "text")


def test_the_fingerprint_sees_index_size_and_samples(tmp_path: Path) -> None:
    count = 5_000_000  # above 4 MiB: samples
    kind = torch.uint16

    def written(name: str, tokens: np.ndarray[Any, Any], lengths: list[int]) -> IndexedTokens:
        with IndexedWriter(tmp_path / name, kind) as writer:
            writer.add(tokens.astype(np.uint16).tobytes(), lengths)
            writer.finish()
        return IndexedTokens(tmp_path / name)

    tokens = np.arange(count) % 50_000
    other = tokens.copy()
    other[-1] += 1
    files = [
        written("a", tokens, [count]),
        written("b", tokens, [count - 1, 1]),
        written("c", other, [count]),
        written("d", tokens[:-1], [count - 1]),
    ]
    assert len({file.fingerprint() for file in files}) == 4
    assert files[0].fingerprint() == written("e", tokens, [count]).fingerprint()
    assert 49_000 < files[0].largest() < 50_000


def test_a_file_larger_than_the_memory_is_mapped(tmp_path: Path) -> None:
    """Sparse: 0.8 TB of zeros that take no room."""
    count, item = 1 << 31, 2
    lengths = [count - 1] * 200
    ends = [(count - 1) * item * i for i in range(200)]
    with (tmp_path / "text.idx").open("wb") as file:
        file.write(struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, 200, 201))
        file.write(struct.pack("<200i200q201q", *lengths, *ends, *range(201)))
    with (tmp_path / "text.bin").open("wb") as file:
        file.truncate((count - 1) * item * 200)
    tokens = IndexedTokens(tmp_path / "text")
    assert len(tokens) == (count - 1) * 200
    last = (count - 1) * 199
    assert tokens.read(last - 3, last + 3).tolist() == [0] * 6
    assert tokens.document_starts(last - 3, last + 3).tolist() == [last]


def test_the_index_comes_last_and_nothing_unfinished_stays(tmp_path: Path) -> None:
    prefix = tmp_path / "sub" / "text"
    with pytest.raises(KeyError), IndexedWriter(prefix, torch.uint16) as writer:
        writer.add(b"\1\0", [1])
        raise KeyError
    assert list(prefix.parent.iterdir()) == []
    with IndexedWriter(prefix, torch.uint16) as writer:
        writer.add(b"\1\0", [1])
        writer.finish({"format": "x"})
    assert json.loads((prefix.parent / "text.json").read_text()) == {"format": "x"}
    with pytest.raises(Refusal, match=r"text\.idx is there already"):
        IndexedWriter(prefix, torch.uint16)


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_a_crash_at_any_rename_leaves_no_index_or_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: int
) -> None:
    def write() -> None:
        with IndexedWriter(tmp_path / "text", torch.uint16) as writer:
            writer.add(b"\1\0\2\0", [2])
            writer.finish({"format": "x"})

    turn, replace = 0, Path.replace

    def replaced(self: Path, target: Path) -> Path:
        nonlocal turn
        turn += 1
        if turn == crash:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replaced)
        with pytest.raises(KeyboardInterrupt):
            write()
    assert {path.name for path in tmp_path.iterdir()} == {*("text.bin", "text.json")[: crash - 1]}
    write()  # what was left is in nobody's way
    assert IndexedTokens(tmp_path / "text").read(0, 2).tolist() == [1, 2]


def test_lengths_have_to_fit_the_bytes(tmp_path: Path) -> None:
    words = "8 bytes came for 3 tokens of 4"
    with (
        IndexedWriter(tmp_path / "text", torch.int32) as writer,
        pytest.raises(ValueError, match=words),
    ):
        writer.add(b"12345678", [3])
