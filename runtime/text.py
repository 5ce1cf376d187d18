"""Text from files: one text file, a folder of text files and JSON lines, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .refusal import Refusal

JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (".txt", ".text", ".md", *JSON_LINES)


def read_documents(path: Path, field: str = "text") -> Iterator[str]:
    """The documents under ``path``, in an order that depends on file names alone.

    A text file is one document; a line of a JSON lines file (``.jsonl``, ``.ndjson``) is one, the
    string under ``field``. In a folder, files with one of ``SUFFIXES`` are read, at any depth.
    Line ends are kept as they stand. Raises Refusal where nothing can be read.
    """
    for file in _files(path):
        if file.suffix in JSON_LINES:
            yield from _json_lines(file, field)
        else:
            try:
                yield file.read_bytes().decode()
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise Refusal(f"{file} is not UTF-8: byte {error.start} is {byte:#04x}.") from None


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Refusal(f"There is no file or folder {path} to read text from.")
    inside = [file for file in path.rglob("*") if file.is_file()]
    files = [file for file in inside if file.suffix in SUFFIXES]
    if not files:
        raise Refusal(
            f"The folder {path} has {len(inside)} files and 0 of them end in {', '.join(SUFFIXES)}."
        )
    return sorted(files, key=lambda file: file.relative_to(path).parts)


def _json_lines(file: Path, field: str) -> Iterator[str]:
    with file.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise Refusal(f"{file}, line {number}, is not JSON: {error}.") from None
            text = record.get(field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                has = ", ".join(record) if isinstance(record, dict) else type(record).__name__
                raise Refusal(
                    f"{file}, line {number}, has no text under {field!r} (it has: {has}); "
                    "--text-field names the right one."
                )
            yield text.encode(errors="replace").decode()  # JSON may hold half a character
