"""What the command line prints: diagnostics in the chosen form, or the traceback of a user's code.

The forms are those of `--format`: text for a terminal, json for programs, github for annotations.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from .diagnostics import render
from .explain.github_form import exception_command, render_github
from .explain.json_form import exception_line, render_json
from .imports import is_installed

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic

# What stands between the shell and the user's file, and tells the user nothing.
_OURS = frozenset(f"specc.compiler.{name}" for name in ("cli", "generate", "load", "pipeline"))
_OUR_PACKAGES = ("commands", "sources", "upkeep")
_MACHINERY = frozenset({"click", "contextlib", "importlib"})
_HERE = Path(__file__).parent


def render_as(format: str, diagnostics: Iterable[Diagnostic], kind: str = "error") -> str:
    """The diagnostics in one of the forms; empty where there are none."""
    renderers = {"text": render, "json": render_json, "github": render_github}
    return renderers[format](diagnostics, kind)


def report(error: Exception, format: str = "text") -> str:
    """The text for stderr: the diagnostics that the error carries, else its traceback.

    The user's exceptions keep their words, notes and frames, in any form: on GitHub the traceback
    stands in the log, under an annotation of the line that raised.
    """
    if hasattr(error, "diagnostics"):
        return render_as(format, error.diagnostics)
    shown = error.with_traceback(_trimmed(error.__traceback__))
    text = "".join(traceback.format_exception(shown)).rstrip("\n")
    if format == "text":
        return text
    name = type(error).__name__
    message = "".join(traceback.format_exception_only(error)).rstrip("\n")
    if format == "json":
        return exception_line(message, _raised_at(error), text)
    return f"{exception_command(name, message, _raised_at(error))}\n{text}"


def exit_as_error(ended: SystemExit) -> RuntimeError:
    """A `sys.exit` in the user's code, which must not end a command with a status of its own."""
    error = RuntimeError(f"your code ended the program (exit code {ended.code}) when it was run")
    return error.with_traceback(ended.__traceback__)


def _raised_at(error: Exception) -> tuple[str, int] | None:
    """File and line of the innermost frame in the user's own code, if there is one.

    A file that does not parse has no frame: the error itself says where.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return error.filename, error.lineno
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.lineno is not None and _is_of_the_user(frame.filename):
            return frame.filename, frame.lineno
    return None


def _is_of_the_user(file: str) -> bool:
    """Neither specc's own, nor the standard library's, nor installed, nor made by exec."""
    path = Path(file)
    ours = (_HERE, _HERE.parent / "runtime", _HERE.parent / "templates")
    folders = (*ours, Path(sysconfig.get_path("stdlib")))
    inside = any(path.is_relative_to(folder) for folder in folders)
    return path.is_absolute() and not inside and not is_installed(path)


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the leading frames of specc, or whole where there is nothing else."""
    rest = trace
    while rest is not None and _is_machinery(rest):
        rest = rest.tb_next
    return rest or trace


def _is_machinery(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__", "")
    file = trace.tb_frame.f_code.co_filename
    return (
        name in _OURS
        or name.startswith(tuple(f"specc.compiler.{package}." for package in _OUR_PACKAGES))
        or name.partition(".")[0] in _MACHINERY
        or file.startswith("<frozen importlib")
    )
