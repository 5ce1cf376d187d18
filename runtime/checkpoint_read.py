"""Tensors of a checkpoint, whole or any part of them, whatever the layout that wrote it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint_folder import FACTS, INDEX, read_text
from .checkpoint_index import Index, Saved, Shards, overlap, parse
from .parameters import LocalPart
from .refusal import Refusal
from .safetensors import Entry, Reader


class Stored(Mapping[str, Tensor]):
    """The tensors of one section, "model" or "optimizer", by name; each is read when asked for.

    Only the files that hold a part of what is asked for are opened, and only its rows are read.
    Raises Refusal where the checkpoint is not whole, or a file is not the one that was written.
    """

    def __init__(self, checkpoint: Path, section: str) -> None:
        self.checkpoint = checkpoint
        self.section = section
        text = read_text(checkpoint, INDEX)
        # What tells this checkpoint from another: the index is the same from one step to the next.
        self.identity = zlib.crc32((read_text(checkpoint, FACTS) + text).encode())
        index: Index = parse(text, checkpoint / INDEX)
        self.tensors: Mapping[str, Saved] = index.tensors[section]
        self._files = index.files[section]
        self._readers: dict[int, Reader] = {}
        self._sources: dict[tuple[int, LocalPart], list[tuple[int, LocalPart, LocalPart]]] = {}

    def __getitem__(self, name: str) -> Tensor:
        shape = self.tensors[name].shape
        return self.read(name, LocalPart((0,) * len(shape), shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors  # a Mapping's own would read the tensor

    def check(self, name: str, part: LocalPart) -> None:
        """Raises Refusal where a file that holds some of this part is missing or damaged."""
        saved = self.tensors[name]
        for writer, shard, _ in self._find(saved.shards, part):
            reader = self._reader(writer)
            if reader.entries.get(name) != Entry(saved.dtype, shard.extent):
                raise Refusal(
                    f"{reader.path} has no {name} of {list(shard.extent)} {saved.dtype}, which "
                    f"{INDEX} says it has."
                )

    def read(self, name: str, part: LocalPart) -> Tensor:
        """This part of a tensor: a new one on the CPU, of the size of ``part.extent``."""
        self.check(name, part)
        saved = self.tensors[name]
        found = torch.empty(part.extent, dtype=saved.dtype)
        for writer, shard, common in self._find(saved.shards, part):
            if not common.extent:
                return self._reader(writer)[name]
            begin = [i - o for i, o in zip(common.offset, shard.offset, strict=True)]
            rows = self._reader(writer).rows(name, begin[0], common.extent[0])
            begin[0] = 0
            source = LocalPart(tuple(begin), common.extent).of(rows)
            place = (i - o for i, o in zip(common.offset, part.offset, strict=True))
            LocalPart(tuple(place), common.extent).of(found).copy_(source)
        return found

    def _find(self, shards: Shards, part: LocalPart) -> list[tuple[int, LocalPart, LocalPart]]:
        """Writer, shard and what it has of ``part``. Tensors that are cut alike share it."""
        key = (id(shards), part)
        if key not in self._sources:
            common = ((shard.writer, shard.part, overlap(shard.part, part)) for shard in shards)
            self._sources[key] = [(w, s, both) for w, s, both in common if both is not None]
        return self._sources[key]

    def _reader(self, writer: int) -> Reader:
        if writer not in self._readers:
            file = self._files[writer]
            path = self.checkpoint / file.name
            if not path.is_file():
                raise Refusal(f"{self.checkpoint} is no whole checkpoint: it has no {file.name}.")
            if path.stat().st_size != file.size:
                raise Refusal(
                    f"{path} has {path.stat().st_size} bytes and was written with {file.size}: it "
                    "was cut short or written over."
                )
            reader = Reader(path)
            if reader.checksum != file.checksum:
                raise Refusal(
                    f"{path} was changed or damaged since it was written: its header has the "
                    f"CRC-32 {reader.checksum:08x}, and {INDEX} has {file.checksum:08x}."
                )
            self._readers[writer] = reader
        return self._readers[writer]
