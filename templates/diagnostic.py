"""What is wrong with a spec, as data: the compiler renders it, and an exception carries it."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True)
class Span:
    """A stretch of one line of a file; line and columns count from 1, `end_column` is past it."""

    file: str
    line: int
    column: int
    end_column: int


@dataclass(frozen=True)
class Diagnostic:
    """One mistake, or one note.

    `code` is stable for ever; `message` stands alone; `path` is the place in the tree
    (``decoder.layer_spec.self_attention``), empty for the root; `span` is the place in the user's
    file and `label` what is wrong there; `also` holds further places, each with its label.
    """

    code: str
    message: str
    path: str = ""
    span: Span | None = None
    label: str = ""
    also: tuple[tuple[Span, str], ...] = ()
    note: str | None = None
    help: str | None = None

    def __str__(self) -> str:
        place = f" (at {self.path})" if self.path else ""
        where = f"{self.span.file}:{self.span.line}: " if self.span else ""
        lines = [f"{where}{self.code}: {self.message}{place}"]
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class SpecError(Exception):
    """A spec is wrong; `diagnostics` holds every mistake that was found."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics))


def suggestion(name: str, known: Iterable[str], subject: str) -> str:
    """Help for a name that is none of `known`: the nearest one, or else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    if not names:
        return f"{subject} has none"
    return f"{subject} has " + ", ".join(f"`{known_name}`" for known_name in names)


def call_span(frame: FrameType | None, skipped_files: frozenset[str], width: int) -> Span | None:
    """Where the innermost frame outside `skipped_files` stands; code made by exec is skipped too.

    A call that runs over several lines is marked by its first `width` columns.
    """
    while frame is not None and (
        frame.f_code.co_filename in skipped_files or frame.f_code.co_filename.startswith("<string")
    ):
        frame = frame.f_back
    if frame is None:
        return None
    positions = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end_line, column, end_column = next(positions)
    if line is None or column is None or end_column is None:
        return None
    end = end_column if end_line == line else column + width
    return Span(frame.f_code.co_filename, line, column + 1, end + 1)
