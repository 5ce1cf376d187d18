"""Diagnostics as text: what is wrong, the lines it is wrong in, and what would be right.

    error[SP102]: `TransformerLayer` has no child `self_attn`
      --> models/tiny.py:31:22
       |
    31 |     layer = ModuleSpec(TransformerLayer, submodules={"self_attn": attention})
       |             ^^^^^^^^^^ at decoder.layer_spec
       = help: did you mean `self_attention`?

The data classes are `specc.templates.diagnostic`'s; they are used here by their fields alone, since
importing them imports torch and `specc --help` renders usage errors without it.
"""

from __future__ import annotations

import linecache
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic, Span

_HERE = Path(__file__).resolve().parent
LIMIT = 20  # more errors than this are counted, not shown


def render(diagnostics: Iterable[Diagnostic], kind: str = "error") -> str:
    """The diagnostics of one stage, by file and line, as the text for a terminal.

    `kind` is the word before the code: error, warning or note. Ends without a newline.
    """
    all_of_them = ordered(diagnostics)
    parts = [_render_one(diagnostic, kind) for diagnostic in all_of_them[:LIMIT]]
    if len(all_of_them) > LIMIT:
        parts.append(f"and {len(all_of_them) - LIMIT} more")
    return "\n\n".join(parts)


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file, line and column; what has no place comes first."""
    return sorted(diagnostics, key=_place)


def fail(code: str, message: str, *, note: str | None = None, help: str | None = None) -> NoReturn:
    """Raise a `SpecError` with one diagnostic that has no place in a file."""
    from specc.templates.diagnostic import Diagnostic, SpecError

    raise SpecError((Diagnostic(code, message, "", None, "", note=note, help=help),))


def shown_path(file: str | Path) -> str:
    """`file` as a person in this folder would type it: relative where it is under the folder.

    A file of specc's own is `specc/templates/mlp.py`, wherever it is installed.
    """
    path = Path(file)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return own_path(path) or str(file)


def own_path(path: Path) -> str | None:
    """`specc/templates/mlp.py` for a file of the templates' or the runtime's; None for others."""
    for folder in ("templates", "runtime"):
        root = _HERE.parent / folder
        if path.is_relative_to(root):
            return f"specc/{folder}/{path.relative_to(root).as_posix()}"
    return None


def parse_error(error: SyntaxError | ValueError) -> str:
    """Why a text is no Python, with the line where there is one (a NUL has none)."""
    return f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)


def _place(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    span = diagnostic.span
    if span is None:
        return ("", 0, 0, diagnostic.code)
    return (span.file, span.line, span.column, diagnostic.code)


def _render_one(diagnostic: Diagnostic, kind: str) -> str:
    head = f"{kind}[{diagnostic.code}]: {diagnostic.message}"
    marks: list[tuple[Span, str, str]] = []
    if diagnostic.span is not None:
        marks.append((diagnostic.span, "^", _primary_label(diagnostic)))
    marks += [(span, "-", label) for span, label in diagnostic.also]

    width = len(str(max((span.line for span, _, _ in marks), default=0)))
    lines = [head]
    for file in dict.fromkeys(span.file for span, _, _ in marks):
        in_file = [mark for mark in marks if mark[0].file == file]
        lines += _excerpt(in_file, width, first=len(lines) == 1)
    pad = " " * width
    if diagnostic.span is None and diagnostic.path:
        lines.append(f"{pad} = at: {diagnostic.path}")
    if diagnostic.note:
        lines += _indented(f"{pad} = note: ", diagnostic.note)
    if diagnostic.help:
        lines += _indented(f"{pad} = help: ", diagnostic.help)
    return "\n".join(lines)


def _primary_label(diagnostic: Diagnostic) -> str:
    where = f"at {diagnostic.path}" if diagnostic.path else ""
    if diagnostic.label and where:
        return f"{diagnostic.label} ({where})"
    return diagnostic.label or where


def _excerpt(marks: Sequence[tuple[Span, str, str]], width: int, *, first: bool) -> list[str]:
    """The marked lines of one file; the first of `marks` names the place in the heading."""
    span = marks[0][0]
    pad = " " * width
    arrow = "-->" if first else ":::"
    lines = [f"{pad}{arrow} {shown_path(span.file)}:{span.line}:{span.column}"]
    linecache.checkcache(span.file)
    shown: list[str] = []
    previous = None
    for mark, sign, label in sorted(marks, key=lambda item: (item[0].line, item[0].column)):
        text = linecache.getline(mark.file, mark.line).rstrip("\n")
        if not text:
            continue  # the file is not there to be read (a spec made in a console): place only
        if previous is not None and mark.line > previous + 1:
            shown.append(f"{'.' * min(3, width + 1)}")
        if mark.line != previous:
            shown.append(f"{mark.line:>{width}} | {text}")
        shown.append(f"{pad} | {_underline(text, mark, sign)} {label}".rstrip())
        previous = mark.line
    return [*lines, f"{pad} |", *shown] if shown else lines


def _underline(text: str, span: Span, sign: str) -> str:
    start, end = span.column - 1, span.end_column - 1
    before = "".join("\t" if c == "\t" else " " * _cells(c) for c in text[:start])
    return before + sign * max(1, sum(_cells(c) for c in text[start:end]))


def _cells(character: str) -> int:
    """Columns of a terminal that a character takes: two for the wide ones of East Asia."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _indented(prefix: str, text: str) -> list[str]:
    first, *rest = text.splitlines()
    return [prefix + first, *(" " * len(prefix) + line for line in rest)]
