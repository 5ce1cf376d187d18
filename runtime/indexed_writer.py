"""Megatron's token files written as the tokens come; ``indexed`` says what stands in them."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import torch

from .indexed import DTYPES, HEADER, MAGIC, VERSION, bin_path, idx_path
from .refusal import Refusal

RECORD_FORMAT = "specc tokens 1"  # of PREFIX.json, which ``specc tokenize`` writes

_AT_ONCE = 1 << 16  # entries of the index that are written together


def smallest_dtype(vocabulary: int) -> torch.dtype:
    """The tokens' dtype that Megatron takes for a vocabulary (``DType.optimal_dtype``)."""
    return torch.uint16 if vocabulary < 65500 else torch.int32


def record_path(prefix: Path) -> Path:
    """Where it is told how the token files were made."""
    return prefix.with_name(f"{prefix.name}.json")


class IndexedWriter:
    """Writes ``PREFIX.bin`` and ``PREFIX.idx``; used in a ``with``.

    Tokens go to the disk at once; the index is kept, 12 bytes a document. All files are written
    aside and renamed, ``.idx`` last: where there is one, the others are whole.

    Raises Refusal where there is an index of that name.
    """

    def __init__(self, prefix: Path, dtype: torch.dtype) -> None:
        if idx_path(prefix).exists():
            raise Refusal(f"{idx_path(prefix)} is there already: remove it, or take another name.")
        self.prefix = prefix
        self._code = next(code for code, known in DTYPES.items() if known == dtype)
        self._item = dtype.itemsize
        self._lengths = array("i")
        self._bounds = array("q", [0])
        self._bytes = 0
        prefix.parent.mkdir(parents=True, exist_ok=True)
        self._bin = _aside(bin_path(prefix)).open("wb")

    def add(self, tokens: bytes | memoryview, lengths: Sequence[int]) -> None:
        """Documents of one sequence each: their tokens' bytes, one after the other, and sizes."""
        before = len(self._lengths)
        self._add_sequences(tokens, lengths)
        self._bounds.extend(range(before + 1, len(self._lengths) + 1))

    def add_document(self, tokens: bytes | memoryview, lengths: Sequence[int]) -> None:
        """One document of ``len(lengths)`` sequences."""
        self._add_sequences(tokens, lengths)
        self._bounds.append(len(self._lengths))

    @property
    def tokens(self) -> int:
        return self._bytes // self._item

    @property
    def documents(self) -> int:
        return len(self._bounds) - 1

    def finish(self, record: Mapping[str, object] | None = None) -> None:
        """Put the files in their places, ``record`` as ``PREFIX.json`` with them."""
        _close(self._bin)
        places = [bin_path(self.prefix)]
        if record is not None:
            places.append(record_path(self.prefix))
            with _aside(places[-1]).open("w") as file:
                file.write(json.dumps(record, indent=2) + "\n")
                _close(file)
        places.append(idx_path(self.prefix))
        with _aside(places[-1]).open("wb") as index:
            count, bounds = len(self._lengths), len(self._bounds)
            index.write(HEADER.pack(MAGIC, VERSION, self._code, count, bounds))
            index.write(self._lengths)
            sizes = (length * self._item for length in self._lengths)
            pointers = islice(accumulate(chain([0], sizes)), count)
            while part := array("q", islice(pointers, _AT_ONCE)):
                index.write(part)
            index.write(self._bounds)
            _close(index)
        for place in places:
            _aside(place).replace(place)
        _sync_folder(self.prefix.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what is not finished."""
        self._bin.close()
        for path in (bin_path(self.prefix), record_path(self.prefix), idx_path(self.prefix)):
            _aside(path).unlink(missing_ok=True)

    def _add_sequences(self, tokens: bytes | memoryview, lengths: Sequence[int]) -> None:
        if sum(lengths) * self._item != memoryview(tokens).nbytes:
            raise ValueError(
                f"{memoryview(tokens).nbytes} bytes came for {sum(lengths)} tokens of {self._item}"
            )
        longest = max(lengths, default=0)
        if longest > 2**31 - 1:
            raise Refusal(
                f"A document has {longest} tokens, and the format takes {2**31 - 1} at most."
            )
        self._bin.write(tokens)
        self._bytes += memoryview(tokens).nbytes
        self._lengths.extend(lengths)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _close(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _sync_folder(folder: Path) -> None:
    """Make renames in it last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
