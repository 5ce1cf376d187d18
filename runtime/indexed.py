"""Megatron's token files, ``PREFIX.bin`` and ``PREFIX.idx``, read as they are.

``.bin`` has the tokens of all sequences, one after the other. ``.idx``, little-endian, without
padding:

    9 bytes   MMIDIDX, 0, 0
    uint64    version, 1
    uint8     code of the tokens' dtype (``DTYPES``)
    uint64    how many sequences
    uint64    how many document bounds
    int32     of each sequence, its tokens
    int64     of each sequence, its first byte in .bin
    int64     of each bound, the sequence that begins a document (the last: where the last one ends)
    int8      of each sequence, its mode: in multimodal files only

Source: megatron/core/datasets/indexed_dataset.py. Both files are mapped, so that a page of them is
read when something on it is asked for: by Python's mmap, since torch.from_file maps for writing,
which Linux refuses for a file larger than the memory, and wants arrays aligned, which these aren't.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from bisect import bisect_left
from pathlib import Path

import torch
from torch import Tensor

from .refusal import Refusal

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 8: torch.uint16,
}  # fmt: skip
_FLOATS = {6: "float64", 7: "float32"}
_AT_ONCE = 1 << 20  # entries of the index, or tokens, that are looked at together
_SAMPLES, _SAMPLE = 64, 1 << 16  # blocks of .bin that stand for all of it, and their bytes


def bin_path(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.bin")


def idx_path(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.idx")


class IndexedTokens:
    """The tokens of a pair of files as one row of ``len()`` tokens, and where documents begin.

    Raises Refusal where a file is missing, cut short, of another format or version, holds floats or
    several modes, or where its sequences do not follow each other without gaps.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        index, self._bin = _mapped(idx_path(prefix)), _mapped(bin_path(prefix))
        self.sequences = sequences = self._read_header(index)
        pointers = HEADER.size + 4 * sequences
        bounds = pointers + 8 * sequences
        self._lengths = memoryview(index)[HEADER.size : pointers].cast("i")
        self._pointers = memoryview(index)[pointers:bounds].cast("q")
        self._bounds = memoryview(index)[bounds:].cast("q")
        self._length = self._check_sequences()
        self._check_documents()
        self._index = index

    def __len__(self) -> int:
        return self._length

    @property
    def documents(self) -> int:
        return max(len(self._bounds) - 1, 0)

    def sequence(self, number: int) -> Tensor:
        """The tokens of sequence ``number``: int64."""
        begin = self._pointers[number] // self.dtype.itemsize
        return self.read(begin, begin + self._lengths[number])

    def read(self, begin: int, end: int) -> Tensor:
        """Tokens [end - begin] int64."""
        return self._stored(begin, end).long()

    def document_starts(self, begin: int, end: int) -> Tensor:
        """The places in [begin, end) at which a document begins, in order: int64.

        One comes twice where a document is empty.
        """
        known = range(self.documents)
        first = bisect_left(known, begin, key=self._document_start)
        last = bisect_left(known, end, lo=first, key=self._document_start)
        if first == last:
            return torch.empty(0, dtype=torch.int64)
        numbers = _tensor(self._bounds[first:last], torch.int64)
        base = int(numbers[0])
        pointers = _tensor(self._pointers[base : int(numbers[-1]) + 1], torch.int64)
        return pointers[numbers - base] // self.dtype.itemsize

    def largest(self) -> int:
        """The largest token (-1 of none); of a file above 4 MiB, that of samples."""
        found = -1
        for begin, end in self._sampled():
            item = self.dtype.itemsize
            part = self._stored(-(-begin // item), end // item)
            if len(part):
                found = max(found, int(part.long().max()))
        return found

    def fingerprint(self) -> str:
        """A hash of all of ``.idx`` and of samples of ``.bin``, cheap for any size."""
        digest = hashlib.sha256(self._index)
        digest.update(str(len(self._bin)).encode())
        for begin, end in self._sampled():
            digest.update(self._bin[begin:end])
        return digest.hexdigest()[:16]

    def _stored(self, begin: int, end: int) -> Tensor:
        item = self.dtype.itemsize
        return _tensor(memoryview(self._bin)[begin * item : end * item], self.dtype)

    def _sampled(self) -> list[tuple[int, int]]:
        """Parts of ``.bin``: all of it where it is small, else some, the first and last among
        them."""
        size = len(self._bin)
        if size <= _SAMPLES * _SAMPLE:
            return [(at, min(at + _SAMPLE, size)) for at in range(0, size, _SAMPLE)]
        begins = [(size - _SAMPLE) * i // (_SAMPLES - 1) for i in range(_SAMPLES)]
        return [(begin, begin + _SAMPLE) for begin in begins]

    def _document_start(self, document: int) -> int:
        number = self._bounds[document]
        if number == self.sequences:
            return self._length
        return self._pointers[number] // self.dtype.itemsize

    def _read_header(self, index: mmap.mmap | bytes) -> int:
        """How many sequences the index has; its size and the dtype are checked."""
        path = idx_path(self.prefix)
        if len(index) < HEADER.size:
            raise Refusal(
                f"{path} is cut short: it has {len(index)} bytes, and its header takes "
                f"{HEADER.size}."
            )
        magic, version, code, sequences, bounds = HEADER.unpack_from(index)
        if magic != MAGIC:
            raise Refusal(
                f"{path} is no index of token files: it begins with {magic!r}, not with {MAGIC!r}."
            )
        if version != VERSION:
            raise Refusal(f"{path} has version {version}; version {VERSION} is supported.")
        if code not in DTYPES:
            known = ", ".join(f"{key} ({str(kind)[6:]})" for key, kind in DTYPES.items())
            raise Refusal(
                f"{path} has tokens of dtype {code} ({_FLOATS.get(code, 'unknown')}); token ids "
                f"are whole numbers: {known}."
            )
        self.dtype = DTYPES[code]
        promised = HEADER.size + 12 * sequences + 8 * bounds
        if sequences and len(index) == promised + sequences:
            raise Refusal(
                f"{path} has a mode for each of its {sequences} sequences: it is a multimodal data "
                "set, and text alone is supported."
            )
        if len(index) != promised:
            raise Refusal(
                f"{path} has {len(index)} bytes where {sequences} sequences and {bounds} document "
                f"bounds take {promised}: it was cut short or written over."
            )
        return int(sequences)

    def _check_sequences(self) -> int:
        """That they follow each other in ``.bin`` and fill it; how many tokens there are."""
        item, end = self.dtype.itemsize, 0
        for begin in range(0, self.sequences, _AT_ONCE):
            lengths = _tensor(self._lengths[begin : begin + _AT_ONCE], torch.int32).long()
            pointers = _tensor(self._pointers[begin : begin + _AT_ONCE], torch.int64)
            ends = end + lengths.cumsum(0) * item
            wrong = ((ends - lengths * item != pointers) | (lengths < 0)).nonzero()
            if len(wrong):
                at = int(wrong[0])
                raise Refusal(
                    f"{idx_path(self.prefix)}: sequence {begin + at} has {int(lengths[at])} tokens "
                    f"from byte {int(pointers[at])}, and the one before it ends at byte "
                    f"{int(ends[at] - lengths[at] * item)}; sequences without gaps, in the order "
                    "of the index, are supported."
                )
            end = int(ends[-1])
        if end != len(self._bin):
            raise Refusal(
                f"{bin_path(self.prefix)} has {len(self._bin)} bytes where "
                f"{idx_path(self.prefix)} promises {end}: it was cut short or is of another index."
            )
        return end // item

    def _check_documents(self) -> None:
        last = 0
        for begin in range(0, len(self._bounds), _AT_ONCE):
            part = _tensor(self._bounds[begin : begin + _AT_ONCE], torch.int64)
            steps = part.diff(prepend=torch.tensor([last]))
            if int(steps.min()) < 0 or int(part[-1]) > self.sequences:
                raise Refusal(
                    f"{idx_path(self.prefix)}: its document bounds do not rise from 0 to its "
                    f"{self.sequences} sequences."
                )
            last = int(part[-1])


def _mapped(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            if not path.stat().st_size:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise Refusal(f"There is no file {path}; token files are a .bin and an .idx.") from None


def _tensor(part: memoryview, dtype: torch.dtype) -> Tensor:
    """A copy, aligned and writable, of a part of a file."""
    if not part.nbytes:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(part), dtype=dtype)
