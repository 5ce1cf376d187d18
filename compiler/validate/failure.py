"""What validation raises where a page is not its spec's model."""

from __future__ import annotations

from typing import NoReturn

from specc.templates.diagnostic import Diagnostic

from ..errors import CompileError


class ValidationError(CompileError):
    """The page and the spec's own model differ; the one diagnostic says in what first."""


def differ(code: str, message: str, *, path: str = "", note: str | None = None) -> NoReturn:
    """Raise a ValidationError.

    SP501: names, shapes, records or constructors. SP502: how an initial value is made. SP503: the
    operations. SP504: numbers. SP505: the page does not run. SP506: it is cut wrongly into stages.
    """
    help = "this is a mistake of specc's: no page is written; --no-validate writes it as it is"
    raise ValidationError((Diagnostic(code, message, path, note=note, help=help),))


def reason(error: Exception) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
