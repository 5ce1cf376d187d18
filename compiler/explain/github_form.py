"""Diagnostics as workflow commands of GitHub Actions, which shows them beside the changed lines.

The form is `::error file=F,line=L,col=C,endColumn=E,title=T::message`; see "Workflow commands for
GitHub Actions", and `toolkit/packages/core/src/command.ts` for what has to be escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnostics import ordered, shown_path

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render_github(diagnostics: Iterable[Diagnostic], kind: str = "error") -> str:
    """One command for each, by file and line, none left out. Ends without a newline."""
    return "\n".join(github_line(diagnostic, kind) for diagnostic in ordered(diagnostics))


def github_line(diagnostic: Diagnostic, kind: str) -> str:
    """A diagnostic as one command. What has no place of its own there stands in the message."""
    span = diagnostic.span
    properties: dict[str, str | int] = {}
    if span is not None:
        properties = {
            "file": annotated_path(span.file),
            "line": span.line,
            "col": span.column,
            "endColumn": span.end_column,
        }
    lines = [diagnostic.message]
    if diagnostic.label:
        lines.append(diagnostic.label)
    if diagnostic.path:
        lines.append(f"at: {diagnostic.path}")
    lines += [f"{label}: {shown_path(at.file)}:{at.line}" for at, label in diagnostic.also]
    if diagnostic.note:
        lines.append(f"note: {diagnostic.note}")
    if diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    return command(COMMANDS[kind], properties | {"title": diagnostic.code}, "\n".join(lines))


def exception_command(name: str, message: str, place: tuple[str, int] | None) -> str:
    """An exception of the user's own code, at the line that raised it."""
    properties: dict[str, str | int] = {}
    if place is not None:
        properties = {"file": annotated_path(place[0]), "line": place[1]}
    return command("error", properties | {"title": name}, message)


def command(name: str, properties: dict[str, str | int], message: str) -> str:
    """`::name key=value,key=value::message`, escaped."""
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {written}::{_escaped(message)}"


def annotated_path(file: str | Path) -> str:
    """`file` from the root of the checkout, where GitHub looks for it, as far as it is under it."""
    root = os.environ.get("GITHUB_WORKSPACE")
    path = Path(file).resolve()
    if root and path.is_relative_to(Path(root).resolve()):
        return path.relative_to(Path(root).resolve()).as_posix()
    return shown_path(file)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str | int) -> str:
    return _escaped(str(value)).replace(":", "%3A").replace(",", "%2C")
