"""Writes safetensors files whose tensors come in pieces, so that none is ever whole in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import torch
from torch import Tensor

from specc.runtime.safetensors import Entry, bytes_of, header

AT_ONCE = 2**26
Told = Callable[[int], None]  # so many bytes are written


def write_pieces(
    file: BinaryIO,
    entries: Mapping[str, Entry],
    tensors: Iterable[tuple[str, Iterable[Tensor]]],
    metadata: Mapping[str, str],
    told: Told,
) -> bytes:
    """Write ``tensors`` in the order of ``entries``, each as its pieces along the first dimension.

    Pieces are cast to the entry's dtype. Returns the header. Raises ValueError where a tensor is
    not what its entry says.
    """
    head = header(entries, metadata)
    file.write(head)
    for (name, entry), (given, pieces) in zip(entries.items(), tensors, strict=True):
        written = 0
        for piece in pieces:
            data = piece.detach().to("cpu", entry.dtype).contiguous()
            if data.numel():
                file.write(bytes_of(data))
            written += data.numel() * data.element_size()
            told(data.numel() * data.element_size())
        if given != name or written != entry.nbytes:
            raise ValueError(f"{given} has {written} bytes where the header has {name} {entry}")
    return head


def row_ranges(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where pieces of a tensor's rows begin, and how many rows each has: about 64 M entries."""
    count = max(1, AT_ONCE // max(1, math.prod(shape[1:])))
    for first in range(0, shape[0], count):
        yield first, min(count, shape[0] - first)


def dtype_named(text: str) -> torch.dtype | None:
    """float32, bfloat16 or float16; None for another name."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return known.get(text.removeprefix("torch."))
