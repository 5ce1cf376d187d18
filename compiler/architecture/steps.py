"""Steps of a forward, one by one: what they take, and the same with other values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .calls import Name, Step, Value

_ELEMENT = re.compile(r"^(?:(?P<list>.+)\.)?(?P<index>\d+)$")


def element(name: str) -> tuple[str, int] | None:
    """The list and the index of a step's child, where it is a layer of a list."""
    match = _ELEMENT.match(name)
    return None if match is None else (match["list"] or "", int(match["index"]))


def moved(value: Any, change: Callable[[Value], Any]) -> Any:
    """An argument with its values changed."""
    if isinstance(value, Value):
        return change(value)
    if isinstance(value, tuple) and not isinstance(value, Name):
        return tuple(moved(part, change) for part in value)
    return value


def with_values(step: Step, change: Callable[[Value], Any]) -> Step:
    return replace(
        step,
        args=moved(step.args, change),
        kwargs=moved(step.kwargs, change),
        results=moved(step.results, change),
    )


def writes(step: Step) -> bool:
    """Whether a step changes one of its arguments."""
    name = step.name
    return step.kind == "torch" and (
        name == "__setitem__" or (name.endswith("_") and not name.startswith("__"))
    )
