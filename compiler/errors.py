"""Errors of the compiler: a diagnostic raised where going on would give a wrong page."""

from __future__ import annotations

import inspect
from typing import NoReturn

from specc.templates.diagnostic import Diagnostic, Span, SpecError


class CompileError(SpecError):
    """The spec is sound, but a class in it cannot be written out faithfully."""


def refuse(
    code: str,
    message: str,
    where: type | Span | None = None,
    *,
    label: str = "",
    note: str | None = None,
    help: str | None = None,
    path: str = "",
) -> NoReturn:
    """Raise a CompileError of one diagnostic; `where` is a span, or the class that it speaks of."""
    span = span_of_class(where) if isinstance(where, type) else where
    raise CompileError((Diagnostic(code, message, path, span, label, note=note, help=help),))


def span_of_class(cls: type) -> Span | None:
    """The line on which a class is defined."""
    try:
        lines, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None
    if file is None:
        return None
    line = first + next(
        (i for i, text in enumerate(lines) if text.lstrip().startswith("class ")), 0
    )
    text = lines[line - first].rstrip("\n")
    return Span(file, line, len(text) - len(text.lstrip()) + 1, len(text) + 1)
