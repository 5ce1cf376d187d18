"""What ``specc tokenize`` reads, in blocks that workers take one at a time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .refusal import Refusal
from .text import JSON_LINES, PARQUET, SUFFIXES, document_of_file, document_of_line, text_files

HUGGING_FACE = "hf:"
_BLOCK = 1 << 20  # bytes of input that a block has, or one document more
_ROWS = 256  # of a table, that are asked for together


class Block(Protocol):
    """Some documents: where they are, or the text where only the reader can get at it."""

    @property
    def size(self) -> int:
        """Bytes of input: for the time left."""

    def documents(self, field: str) -> list[str]:
        """Raises Refusal where one is no text."""


@dataclass(frozen=True)
class Files:
    """Text files, a document each."""

    files: tuple[Path, ...]
    size: int

    def documents(self, field: str) -> list[str]:
        return [document_of_file(file) for file in self.files]


@dataclass(frozen=True)
class Lines:
    """Whole lines of a JSON lines file, bytes ``begin`` to ``end``."""

    file: Path
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin

    def documents(self, field: str) -> list[str]:
        with self.file.open("rb") as file:
            file.seek(self.begin)
            lines = file.read(self.size).split(b"\n")
        found = []
        for number, line in enumerate(lines):
            if line.strip():
                try:
                    found.append(document_of_line(line, field, self.file, number))
                except Refusal:
                    # Counting all lines before is worth it for a message only.
                    document_of_line(line, field, self.file, self._lines_before() + number + 1)
        return found

    def _lines_before(self) -> int:
        with self.file.open("rb") as file:
            parts = (file.read(min(_BLOCK, self.begin - at)) for at in range(0, self.begin, _BLOCK))
            return sum(part.count(b"\n") for part in parts)


@dataclass(frozen=True)
class Rows:
    """Rows of a table that this process has read."""

    texts: tuple[str, ...]
    size: int

    def documents(self, field: str) -> list[str]:
        return list(self.texts)


class Inputs:
    """``names`` in their order, folders by file name; each name is looked at before any is read.

    A name is a text file, JSON lines, parquet, a folder of those, a folder that the package
    ``datasets`` saved, or ``hf:NAME`` or ``hf:NAME:SPLIT``, which that package loads. Raises
    Refusal where there is nothing of that name, or the package is missing.
    """

    def __init__(self, names: Sequence[str], field: str) -> None:
        self._field = field
        self._parts: list[Path | str] = []
        for name in names:
            if name.startswith(HUGGING_FACE) or _is_saved(Path(name)):
                self._parts.append(name)
            else:
                self._parts += text_files(Path(name), (*SUFFIXES, PARQUET))
        if any(isinstance(part, str) or part.suffix == PARQUET for part in self._parts):
            _package()
        sizes = [part.stat().st_size for part in self._parts if isinstance(part, Path)]
        # Of a data set that is loaded as it is read no one knows.
        self.size = sum(sizes) if len(sizes) == len(self._parts) else None

    def __iter__(self) -> Iterator[Block]:
        small: list[Path] = []
        for part in self._parts:
            if isinstance(part, str) or part.suffix in (*JSON_LINES, PARQUET):
                yield from _grouped(small)
                small = []
                if isinstance(part, str):
                    yield from _loaded(part, self._field)
                elif part.suffix == PARQUET:
                    yield from _parquet(part, self._field)
                else:
                    yield from _lines(part)
            else:
                small.append(part)
        yield from _grouped(small)


def _grouped(files: Iterable[Path]) -> Iterator[Files]:
    group: list[Path] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.stat().st_size
        if size >= _BLOCK:
            yield Files(tuple(group), size)
            group, size = [], 0
    if group:
        yield Files(tuple(group), size)


def _lines(path: Path) -> Iterator[Lines]:
    end, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while end < size:
            begin = end
            file.seek(begin + _BLOCK)
            file.readline()
            end = min(file.tell(), size)
            yield Lines(path, begin, end)


def _parquet(path: Path, field: str) -> Iterator[Rows]:
    """All rows; the file counts as read at its end, for its rows' places in it are not known."""
    try:
        table = _package().load_dataset(
            "parquet", data_files=str(path), split="train", streaming=True
        )
        yield from _rows(table, str(path), field)
    except Refusal:
        raise
    except Exception as error:  # the package raises what its readers do
        raise Refusal(f"{path} cannot be read as parquet: {_line(error)}") from None
    yield Rows((), path.stat().st_size)


def _loaded(name: str, field: str) -> Iterator[Rows]:
    package = _package()
    try:
        if name.startswith(HUGGING_FACE):
            source, _, split = name.removeprefix(HUGGING_FACE).partition(":")
            found = package.load_dataset(source, split=split or None, streaming=True)
        else:
            found = package.load_from_disk(name)
    except Exception as error:
        raise Refusal(f"{name} cannot be loaded as a data set: {_line(error)}") from None
    if isinstance(found, dict):
        raise Refusal(
            f"{name} has {len(found)} splits, {', '.join(found)}: name one of them, "
            + (f"{name}:{next(iter(found))}." if ":" in name else f"{name}/{next(iter(found))}.")
        )
    yield from _rows(found, name, field)


def _rows(table: Any, name: str, field: str) -> Iterator[Rows]:
    """The column ``field`` of a table of the package ``datasets``."""
    texts: list[str] = []
    size = row = 0
    if table.column_names is None or field in table.column_names:
        table = table.select_columns([field])  # others are not decoded
    for batch in table.iter(batch_size=_ROWS):
        for text in batch.get(field, [None]):
            row += 1
            if not isinstance(text, str):
                raise Refusal(
                    f"{name}, row {row}, has no text under {field!r} (it has: "
                    f"{', '.join(batch)}); --text-field names the right one."
                )
            texts.append(text)
            size += len(text)
            if size >= _BLOCK:
                yield Rows(tuple(texts), 0)
                texts, size = [], 0
    yield Rows(tuple(texts), 0)


def _is_saved(path: Path) -> bool:
    """Whether the package ``datasets`` saved something there."""
    return any((path / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def _package() -> Any:
    try:
        return importlib.import_module("datasets")  # an extra, loaded when asked for
    except ImportError:
        raise Refusal(
            "Parquet files and data sets need the package datasets: pip install 'specc[datasets]'."
        ) from None


def _line(error: Exception) -> str:
    text = f"{error}".strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".") + "."
