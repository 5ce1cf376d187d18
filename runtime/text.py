"""Text from files: one text file, a folder of text files and JSON lines, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from .refusal import Refusal

PARQUET = ".parquet"  # which ``specc tokenize`` reads
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (".txt", ".text", ".md", *JSON_LINES)


def read_documents(path: Path, field: str = "text") -> Iterator[str]:
    """The documents under ``path``, in an order that depends on file names alone.

    A text file is one document; a line of a JSON lines file (``.jsonl``, ``.ndjson``) is one, the
    string under ``field``. In a folder, files with one of ``SUFFIXES`` are read, at any depth.
    Line ends are kept as they stand. Raises Refusal where nothing can be read.
    """
    for file in text_files(path):
        if file.suffix in JSON_LINES:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield document_of_line(line, field, file, number)
        else:
            yield document_of_file(file)


def text_files(path: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """``path`` where it is a file, else the files below it that end in one of ``suffixes``.

    Raises Refusal where there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Refusal(f"There is no file or folder {path} to read text from.")
    inside = [file for file in path.rglob("*") if file.is_file()]
    files = [file for file in inside if file.suffix in suffixes]
    if not files:
        raise Refusal(
            f"The folder {path} has {len(inside)} files and 0 of them end in {', '.join(suffixes)}."
        )
    return sorted(files, key=lambda file: file.relative_to(path).parts)


def has_text(folder: Path) -> Path | None:
    """Some file below the folder that would be read as text."""
    inside = (file for file in folder.rglob("*") if file.is_file())
    return next((file for file in inside if file.suffix in SUFFIXES), None)


def document_of_file(file: Path) -> str:
    """All of a text file. Raises Refusal where it is not UTF-8."""
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Refusal(f"{file} is not UTF-8: byte {error.start} is {byte:#04x}.") from None


def document_of_line(line: bytes, field: str, file: Path, number: int) -> str:
    """The string under ``field`` in a line of JSON.

    Raises Refusal, with ``file`` and the line's number from 1, where there is none.
    """
    try:
        record = json.loads(line.decode())
    except ValueError as error:
        raise Refusal(f"{file}, line {number}, is not JSON: {error}.") from None
    text = record.get(field) if isinstance(record, dict) else None
    if not isinstance(text, str):
        has = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise Refusal(
            f"{file}, line {number}, has no text under {field!r} (it has: {has}); "
            "--text-field names the right one."
        )
    return text.encode(errors="replace").decode()  # JSON may hold half a character
