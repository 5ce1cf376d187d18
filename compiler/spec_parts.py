"""The values that a spec holds, in every container that one may stand in."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from specc.templates.spec import ModuleSpec


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What `value` holds directly, with the name it has there.

    A spec holds its params and its submodules (a dict, or a dataclass of Megatron-Core's); so do
    partials, dicts, lists, tuples and dataclass instances hold theirs. Anything else is a leaf.
    """
    if isinstance(value, ModuleSpec):
        yield from parts(value.module)
        yield from parts(value.params)
        yield from parts(value.submodules)
    elif isinstance(value, functools.partial):
        yield from parts(value.args)
        yield from value.keywords.items()
    elif isinstance(value, dict):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything below `value`, each object once, with the first path that leads to it."""
    seen: set[int] = {id(value)}
    pending = [(path, value)]
    while pending:
        path, current = pending.pop(0)
        for name, part in parts(current):
            if id(part) in seen:
                continue
            seen.add(id(part))
            below = f"{path}.{name}" if path else name
            yield below, part
            pending.append((below, part))
