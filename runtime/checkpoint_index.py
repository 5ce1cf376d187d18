"""What a checkpoint holds and where: every tensor's shards with their global offsets, as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .parameters import LocalPart
from .refusal import Refusal
from .safetensors import DTYPES, NAMES

FORMAT = "specc checkpoint 2"
SECTIONS = ("model", "optimizer")
_FILE = re.compile(r"(model|optimizer)(-\d{5,}-of-\d{5,})?\.safetensors")


@dataclass(frozen=True)
class Shard:
    """A part of a tensor, in the file of the rank ``writer``, under the tensor's name."""

    writer: int
    part: LocalPart


Shards = tuple[Shard, ...]


@dataclass(frozen=True)
class Saved:
    """A tensor: its shards cover it, and none overlaps another."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    shards: Shards


@dataclass(frozen=True)
class File:
    """A safetensors file in the checkpoint's folder; ``checksum`` is the CRC-32 of its header."""

    name: str
    size: int
    checksum: int


@dataclass(frozen=True)
class Index:
    """By section (model, optimizer): the file of each writer, and the tensors by name."""

    files: Mapping[str, Mapping[int, File]]
    tensors: Mapping[str, Mapping[str, Saved]]

    def text(self) -> str:
        """As JSON. Tensors that are cut alike name one list of shards, so that it stays short."""
        tables: dict[int, Shards] = {}
        for saved in (saved for named in self.tensors.values() for saved in named.values()):
            tables[id(saved.shards)] = saved.shards
        numbers = {key: number for number, key in enumerate(tables)}
        sections = {
            section: {
                name: {
                    "dtype": NAMES[saved.dtype],
                    "shape": list(saved.shape),
                    "shards": numbers[id(saved.shards)],
                }
                for name, saved in tensors.items()
            }
            for section, tensors in self.tensors.items()
        }
        shards = [
            [[s.writer, list(s.part.offset), list(s.part.extent)] for s in table]
            for table in tables.values()
        ]
        files = {
            section: {
                str(writer): [file.name, file.size, file.checksum] for writer, file in named.items()
            }
            for section, named in self.files.items()
        }
        lines = [f'{{"format": {json.dumps(FORMAT)},', f'"files": {json.dumps(files)},']
        lines += ['"shards": [', ",\n".join(map(json.dumps, shards)), "]"]
        for section, tensors in sections.items():
            named = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in tensors.items()]
            lines += [f", {json.dumps(section)}: {{", ",\n".join(named), "}"]
        return "\n".join([*lines, "}", ""])


def parse(text: str, path: Path) -> Index:
    """The index in ``text``. Raises Refusal where it is none, or its shards make up no tensors.

    ``path`` is where it stands, for the sentence.
    """
    try:
        values = json.loads(text)
        tables = [tuple(_shard(entry) for entry in table) for table in values["shards"]]
        files = {section: dict(_files(values["files"][section])) for section in SECTIONS}
        tensors = {
            section: {
                name: Saved(
                    DTYPES[entry["dtype"]], _sizes(entry["shape"]), tables[int(entry["shards"])]
                )
                for name, entry in values[section].items()
            }
            for section in SECTIONS
        }
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} is no index of a checkpoint: {error!r}.") from None
    checked = set()
    for section in SECTIONS:
        for name, saved in tensors[section].items():
            key = (section, saved.shape, id(saved.shards))
            if key not in checked:
                _check(name, saved, files[section], path)
                checked.add(key)
    return Index(files, tensors)


def overlap(a: LocalPart, b: LocalPart) -> LocalPart | None:
    """What two parts of one tensor have in common, in global offsets; None where nothing."""
    offset = tuple(map(max, a.offset, b.offset))
    ends = (
        min(i + n, j + m) for i, n, j, m in zip(a.offset, a.extent, b.offset, b.extent, strict=True)
    )
    extent = tuple(end - begin for begin, end in zip(offset, ends, strict=True))
    return LocalPart(offset, extent) if all(length > 0 for length in extent) else None


def _sizes(values: Iterable[Any]) -> tuple[int, ...]:
    sizes = tuple(values)
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"{list(sizes)} are no sizes")
    return sizes


def _shard(entry: Any) -> Shard:
    writer, offset, extent = entry
    return Shard(_sizes([writer])[0], LocalPart(_sizes(offset), _sizes(extent)))


def _files(named: Mapping[str, Any]) -> Iterator[tuple[int, File]]:
    for writer, (name, size, checksum) in named.items():
        if not _FILE.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a checkpoint's file")
        yield int(writer), File(name, *_sizes([size, checksum]))


def _check(name: str, saved: Saved, files: Mapping[int, File], path: Path) -> None:
    """Raises Refusal where shards stand in no file, leave a part of the tensor out, or overlap."""
    for shard in saved.shards:
        if shard.writer not in files:
            raise Refusal(
                f"{path} has a shard of {name} that rank {shard.writer} wrote, and names no file "
                "of that rank."
            )
    held = 0
    open_parts: list[LocalPart] = []  # those that reach into the row that the next one starts at
    for part in sorted((shard.part for shard in saved.shards), key=lambda part: part.offset):
        begin, length = part.offset, part.extent
        if not len(begin) == len(length) == len(saved.shape) or any(
            i + n > size for i, n, size in zip(begin, length, saved.shape, strict=True)
        ):
            raise Refusal(
                f"{path}: a shard of {name} has offset {list(begin)} and size {list(length)}, and "
                f"the tensor is {list(saved.shape)}."
            )
        held += math.prod(length)
        if begin:
            open_parts = [p for p in open_parts if p.offset[0] + p.extent[0] > begin[0]]
        for other in open_parts:
            if overlap(part, other) is not None:
                raise Refusal(
                    f"{path}: shards of {name} at {list(other.offset)} of size "
                    f"{list(other.extent)} and at {list(begin)} of size {list(length)} overlap."
                )
        open_parts.append(part)
    if held != math.prod(saved.shape):
        raise Refusal(
            f"{path}: the shards of {name} hold {held} of its {math.prod(saved.shape)} entries."
        )
