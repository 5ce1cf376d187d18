"""Diagnostics as JSON: an object a line, for editors and scripts.

`SCHEMA_VERSION` is raised where a key changes its meaning or goes; a new key does not raise it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..diagnostics import ordered, shown_path

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic, Span

SCHEMA_VERSION = 1
KEYS = (
    "schema_version", "code", "kind", "message", "path", "file", "line", "column", "end_column",
    "label", "also", "note", "help",
)  # fmt: skip


def render_json(diagnostics: Iterable[Diagnostic], kind: str = "error") -> str:
    """One line for each, by file and line, none left out. Ends without a newline."""
    return "\n".join(json_line(diagnostic, kind) for diagnostic in ordered(diagnostics))


def json_line(diagnostic: Diagnostic, kind: str) -> str:
    """A diagnostic as one line of JSON; what it does not have is null.

    Line and columns count characters from 1, and `end_column` is past the last. `schema_version`
    comes first, so that a reader knows the line among what a spec prints.
    """
    return _dumped(
        code=diagnostic.code,
        kind=kind,
        message=diagnostic.message,
        path=diagnostic.path,
        **_place(diagnostic.span),
        label=diagnostic.label or None,
        also=[{**_place(span), "label": label} for span, label in diagnostic.also],
        note=diagnostic.note,
        help=diagnostic.help,
    )


def exception_line(message: str, place: tuple[str, int] | None, traceback: str) -> str:
    """An exception of the user's own code, which has no code: `code` is null and `note` is the
    traceback."""
    file, line = place or (None, None)
    return _dumped(
        kind="error",
        message=message,
        path="",
        file=shown_path(file) if file else None,
        line=line,
        also=[],
        note=traceback,
    )


def _dumped(**values: Any) -> str:
    values["schema_version"] = SCHEMA_VERSION
    return json.dumps({key: values.get(key) for key in KEYS}, ensure_ascii=False)


def _place(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"file": None, "line": None, "column": None, "end_column": None}
    return {
        "file": shown_path(span.file),
        "line": span.line,
        "column": span.column,
        "end_column": span.end_column,
    }
