"""What preparing a tree finds: mistakes, notes, and the config fields that it read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .diagnostic import Diagnostic, Span
from .spans import narrowed


class Placed(Protocol):
    """What has a place in the tree and in the user's file."""

    @property
    def path(self) -> str: ...
    @property
    def span(self) -> Span | None: ...


@dataclass
class Findings:
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)

    def error(self, code: str, message: str, place: Placed, help: str, **more: Any) -> None:
        span = narrowed(place.span, message, place.path)
        self.errors.append(Diagnostic(code, message, place.path, span, help=help, **more))

    def note(self, code: str, message: str, place: Placed, note: str, **more: Any) -> None:
        span = narrowed(place.span, message)
        self.notes.append(Diagnostic(code, message, place.path, span, note=note, **more))


def ordered(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """By place in the user's files, each once."""
    unique = dict.fromkeys(found)
    return tuple(
        sorted(
            unique,
            key=lambda d: (d.span.file, d.span.line, d.span.column) if d.span else ("", 0, 0),
        )
    )


def described(thing: Any) -> str:
    """A value, in a message."""
    if isinstance(thing, type):
        return f"the class `{thing.__name__}`"
    if isinstance(thing, str | int | float | bool) or thing is None:
        return repr(thing)
    return with_article(type(thing).__name__)


def with_article(name: str) -> str:
    """`a list`, `an int`, `an MLP`: as it is read aloud."""
    spelled = len(name) > 1 and name[:2].isupper()
    return f"{'an' if name[0] in ('AEFHILMNORSX' if spelled else 'AEIOUaeiou') else 'a'} {name}"
