"""The places of a mistake: a stage tells the line of a class, and this the spec that asks for it.

The stages know classes and their texts. What they refuse, or note, stands in a class; what the user
wrote is a spec, which names the class. So each diagnostic gets the other of the two: for a line
of a class the spec that builds it, for a line of a spec the call that asks for it.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from specc.templates.diagnostic import Diagnostic, Span

from .errors import CompileError
from .record import Built, Recording
from .source import is_foldable


@contextmanager
def told_with_specs(recording: Recording) -> Iterator[None]:
    """A CompileError that passes through gets the places that it lacks."""
    try:
        yield
    except CompileError as error:
        error.diagnostics = tuple(with_places(d, recording) for d in error.diagnostics)
        raise


def with_places(diagnostic: Diagnostic, recording: Recording) -> Diagnostic:
    """The diagnostic with the line of the spec, or that of the call, among its further places."""
    span = diagnostic.span
    if span is None:
        return diagnostic
    for built in recording.built.values():
        if built.span == span:
            call = _called_at(built)
            more = ((call, f"`{built.cls.__name__}` is built here"),) if call else ()
            return replace(diagnostic, also=(*diagnostic.also, *more))
    for built in recording.built.values():
        if any(_holds(cls, span) for cls in built.cls.__mro__ if is_foldable(cls)):
            spec = _spec_of(built, recording)
            more = ((spec, "this spec builds it"),) if spec else ()
            return replace(diagnostic, also=(*diagnostic.also, *more))
    return diagnostic


def _spec_of(built: Built, recording: Recording) -> Span | None:
    """The spec of a module, or of the nearest one above it that has one."""
    seen: set[int] = set()
    while built.span is None and built.owner is not None and id(built.owner) not in seen:
        seen.add(id(built.owner))
        above = recording.of(built.owner)
        if above is None:
            return None
        built = above
    return built.span


def _holds(cls: type, span: Span) -> bool:
    try:
        file = inspect.getsourcefile(cls)
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return False
    return file == span.file and first <= span.line < first + len(lines)


def _called_at(built: Built) -> Span | None:
    """The call of a constructor of the user's or of a template that built the module."""
    place = built.place
    if place is None or built.owner is None:
        return None
    line = linecache.getline(place.file, place.line).rstrip("\n").encode()
    end = place.end_column if place.end_line == place.line else len(line)
    column = len(line[: place.column].decode()) + 1
    return Span(place.file, place.line, column, len(line[:end].decode()) + 1)
