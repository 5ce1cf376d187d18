"""Facts by name, before and after."""

from __future__ import annotations

from collections.abc import Iterator

from .difference import FactChange
from .tree import Value


def changed_facts(
    before: tuple[tuple[str, Value], ...], after: tuple[tuple[str, Value], ...]
) -> Iterator[FactChange]:
    old, new = dict(before), dict(after)
    for name in in_order(list(old), list(new)):
        if not _equal(old.get(name), new.get(name)):
            yield FactChange(name, old.get(name), new.get(name))


def _equal(one: Value, other: Value) -> bool:
    """True is not 1, and 1 is not 1.0."""
    return type(one) is type(other) and one == other


def in_order(old: list[str], new: list[str]) -> list[str]:
    """All names in an order that reads the same from either side: those of both sides first come
    in the order of their places."""
    places = {name: min(_place(old, name), _place(new, name)) for name in (*old, *new)}
    return sorted(places, key=lambda name: (places[name], name))


def _place(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)
