"""A Hugging Face folder's tensors: one safetensors file, or shards that an index names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from specc.runtime.refusal import Refusal
from specc.runtime.safetensors import Entry, Reader

from .pieces import row_ranges
from .source import read_json
from .tensors import Part

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Folder:
    """Tensors by name, each read when it is asked for.

    ``prefix``: what names begin with that a folder may leave out everywhere, as GPT-2's does.
    Raises Refusal where the folder has no weights, a shard is missing, or a file is damaged.
    """

    def __init__(self, path: Path, prefix: str) -> None:
        self.path = path
        if not path.is_dir():
            raise Refusal(f"There is no folder {path}.")
        self._readers: dict[str, Reader] = {}
        if (path / INDEX).is_file():
            self._files = self._indexed()
        elif (path / ONE_FILE).is_file():
            self._files = dict.fromkeys(self._reader(ONE_FILE).entries, ONE_FILE)
        else:
            pickles = sorted(path.glob("*.bin"))
            why = f"; {pickles[0].name} is a pickle, which could run code" if pickles else ""
            raise Refusal(f"{path} has no {ONE_FILE} and no {INDEX}{why}.")
        short = not any(name.startswith(prefix) for name in self._files)
        self._dropped = prefix if short else ""

    def __contains__(self, name: str) -> bool:
        return self._stored(name) in self._files

    def __iter__(self) -> Iterator[str]:
        """The names as the table has them."""
        for name in self._files:
            yield name if name.startswith("lm_head.") else self._dropped + name

    def read(self, part: Part) -> Tensor:
        stored = self._stored(part.name)
        reader = self._reader(self._files[stored])
        return reader[stored] if part.row is None else reader.rows(stored, part.row, 1)[0]

    def rows(self, name: str) -> Iterator[Tensor]:
        """A tensor in pieces of its rows."""
        stored = self._stored(name)
        reader = self._reader(self._files[stored])
        for first, count in row_ranges(reader.entries[stored].shape):
            yield reader.rows(stored, first, count)

    def entry(self, name: str) -> Entry:
        stored = self._stored(name)
        return self._reader(self._files[stored]).entries[stored]

    def file_of(self, name: str) -> Path:
        return self.path / self._files[self._stored(name)]

    def _stored(self, name: str) -> str:
        return name.removeprefix(self._dropped)

    def _indexed(self) -> dict[str, str]:
        index = self.path / INDEX
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
            raise Refusal(f"{index} has no `weight_map` of names and files.")
        for file in sorted(set(names.values())):
            if Path(file).name != file:
                raise Refusal(f"{index} names {file}, which is no file of this folder.")
            if not (self.path / file).is_file():
                raise Refusal(f"{self.path} lacks {file}, a shard that {INDEX} names.")
        for name, file in names.items():
            if name not in self._reader(file).entries:
                raise Refusal(f"{self.path / file} has no {name}, which {INDEX} says it has.")
        return names

    def _reader(self, file: str) -> Reader:
        if file not in self._readers:
            self._readers[file] = Reader(self.path / file)
        return self._readers[file]
