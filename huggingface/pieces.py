"""Writes safetensors files whose tensors come in pieces, so that none is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

import torch
from torch import Tensor

from specc.runtime.safetensors import Entry, bytes_of, header

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


def dtype_named(text: str) -> torch.dtype | None:
    """float32, bfloat16 or float16; None for another name."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return known.get(text.removeprefix("torch."))
