"""An exception as the command line shows it: a diagnostic, or the traceback of a user's code."""

from __future__ import annotations

import traceback
from types import TracebackType

from .diagnostics import render

# What stands between the shell and the user's file, and tells the user nothing.
_OURS = frozenset(
    f"specc.compiler.{name}" for name in ("check", "cli", "generate", "load", "pipeline")
)
_MACHINERY = frozenset({"click", "contextlib", "importlib"})


def report(error: Exception) -> str:
    """The text for stderr: the diagnostics that the error carries, else its traceback.

    The user's exceptions keep their words, notes and frames.
    """
    if hasattr(error, "diagnostics"):
        return render(error.diagnostics)
    shown = error.with_traceback(_trimmed(error.__traceback__))
    return "".join(traceback.format_exception(shown)).rstrip("\n")


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
        or name.startswith("specc.compiler.commands.")
        or name.partition(".")[0] in _MACHINERY
        or file.startswith("<frozen importlib")
    )
