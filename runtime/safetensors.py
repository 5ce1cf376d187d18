"""The safetensors container, read and written with torch alone.

A file is an 8-byte little-endian length, that many bytes of JSON, then the tensors' bytes without
holes. The JSON maps each name to ``{"dtype", "shape", "data_offsets": [begin, end]}``, offsets
counted from the end of the JSON, and may hold ``"__metadata__"``, a map of strings.
Source: https://github.com/huggingface/safetensors#format. Nothing in it can run code.
"""

from __future__ import annotations

import ctypes
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from .refusal import Refusal

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LONGEST_HEADER = 100_000_000  # the limit that the format sets


class Entry(NamedTuple):
    """What the header says of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def header(entries: Mapping[str, Entry], metadata: Mapping[str, str] | None = None) -> bytes:
    """What stands before the tensors of a file that holds ``entries`` in this order."""
    values: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, entry in entries.items():
        begin, end = end, end + entry.nbytes
        values[name] = {
            "dtype": NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(values, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors begin aligned
    return len(text).to_bytes(8, "little") + text


def write(
    file: BinaryIO,
    entries: Mapping[str, Entry],
    tensors: Iterable[tuple[str, Tensor]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write ``tensors``, which come one at a time and in the order of ``entries``.

    So a part on a GPU is copied to this machine's memory only when its turn comes. Raises
    ValueError where a tensor is not what its entry says, or one is missing.
    """
    file.write(header(entries, metadata))
    for (name, entry), (given, tensor) in zip(entries.items(), tensors, strict=True):
        if (given, tensor.dtype, tuple(tensor.shape)) != (name, *entry):
            raise ValueError(
                f"{given} {tensor.dtype} {tuple(tensor.shape)} came where the header of "
                f"{file.name} has {name} {entry.dtype} {entry.shape}"
            )
        if entry.nbytes:
            whole = tensor.detach().cpu().contiguous()
            file.write(bytes_of(whole))


class Reader(Mapping[str, Tensor]):
    """The tensors of a file by name, each read when it is asked for.

    ``checksum`` is the CRC-32 of the header. Raises Refusal where the file is cut short or is no
    safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.metadata: dict[str, str] = {}
        self._begin: dict[str, int] = {}
        self.size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if self.size < 8 or length > min(_LONGEST_HEADER, self.size - 8):
                raise Refusal(
                    f"{path} is cut short or is no safetensors file: its first 8 bytes promise a "
                    f"header of {length} bytes, and the file has {self.size}."
                )
            text = file.read(length)
        self.checksum = zlib.crc32(first + text)
        try:
            values = json.loads(text)
            self.metadata = values.pop("__metadata__", {})
            end = 0
            for name, entry in sorted(values.items(), key=lambda item: item[1]["data_offsets"]):
                self.entries[name] = Entry(DTYPES[entry["dtype"]], tuple(entry["shape"]))
                self._begin[name], stop = entry["data_offsets"]
                if self._begin[name] != end or stop - end != self.entries[name].nbytes:
                    raise ValueError(name)
                end = stop
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refusal(
                f"{path} is no safetensors file: its header is wrong ({error})."
            ) from None
        self._data = 8 + length
        if self.size != self._data + end:
            raise Refusal(
                f"{path} has {self.size} bytes where its header promises {self._data + end}: it "
                "was cut short or written over."
            )

    def __getitem__(self, name: str) -> Tensor:
        shape = self.entries[name].shape
        return self.rows(name, 0, shape[0]) if shape else self.rows(name, 0, 1).reshape(())

    def rows(self, name: str, start: int, count: int) -> Tensor:
        """Rows ``start`` to ``start + count`` of a tensor (of a number: itself, in one row)."""
        dtype, shape = self.entries[name]
        row = math.prod(shape[1:]) * dtype.itemsize
        if not count * row:
            return torch.empty((count, *shape[1:]), dtype=dtype)
        buffer = bytearray(count * row)
        with self.path.open("rb") as file:
            file.seek(self._data + self._begin[name] + start * row)
            if file.readinto(buffer) != len(buffer):
                raise Refusal(f"{self.path} ended while {name} was read: it was cut short.")
        return torch.frombuffer(buffer, dtype=dtype).reshape(count, *shape[1:])

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # a Mapping's own would read the tensor


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor that is not empty; valid while the tensor lives.

    (Tensor.numpy() would need numpy, and does not know bfloat16.)
    """
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr()))
