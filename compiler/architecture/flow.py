"""A forward's steps, prepared for reading: what a `Sequential` does is its caller's, what nothing
uses is left out, a loop over the layers of a list is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .calls import ModuleCall, Step, Value, values
from .loops import Loop, rolled
from .steps import moved, with_values, writes


@dataclass(frozen=True)
class Flow:
    """Steps whose values are numbered by their place here; a step that stands for a loop has it in
    `loops`, and its arguments are those of the first layer."""

    inputs: tuple[tuple[str, Any], ...]
    steps: tuple[Step, ...]
    returned: Any
    loops: dict[int, Loop]


def flow_of(
    call: ModuleCall, sequential: Callable[[str], ModuleCall | None], *, loops: bool = True
) -> Flow:
    """`sequential` gives the call of a child that is a `Sequential`, None for all others."""
    steps, returned = _spliced(call, sequential)
    steps, returned = _live(steps, returned)
    if not loops:
        return Flow(call.inputs, tuple(steps), returned, {})
    steps, returned, found = rolled(steps, returned)
    return Flow(call.inputs, tuple(steps), returned, found)


def _spliced(
    call: ModuleCall, sequential: Callable[[str], ModuleCall | None]
) -> tuple[list[Step], Any]:
    found: list[Step] = []
    known: dict[tuple[int | str, int], Value] = {}  # what a value of the call's is called now

    def now(value: Value) -> Value:
        return known.get((value.source, value.part), value)

    for number, step in enumerate(call.steps):
        step = with_values(step, now)
        inner = sequential(step.name) if step.kind == "child" else None
        if inner is None:
            for result in call.steps[number].results:
                known[result.source, result.part] = result._replace(source=len(found))
            moved_results = tuple(r._replace(source=len(found)) for r in call.steps[number].results)
            found.append(replace(step, results=moved_results))
            continue
        given = dict(enumerate(value for _, value in step.kwargs))
        start = len(found)
        inner_steps, inner_returned = _spliced(inner, lambda _: None)

        def outer(
            value: Value, given: Any = given, start: int = start, name: str = step.name
        ) -> Any:
            if isinstance(value.source, int):
                return value._replace(source=value.source + start)
            if value.source.startswith("input "):
                return given.get(int(value.source.split()[1]), value)
            return value._replace(source=f"{name}.{value.source}")

        for one in inner_steps:
            changed = with_values(one, outer)
            child = f"{step.name}.{one.name}" if one.kind == "child" else one.name
            found.append(replace(changed, name=child))
        results = list(values(moved(inner_returned, outer)))
        for old, new in zip(call.steps[number].results, results, strict=False):
            known[old.source, old.part] = new
    return found, moved(call.returned, now)


def _live(steps: Sequence[Step], returned: Any) -> tuple[list[Step], Any]:
    """The steps that something uses: those before the result, and what writes in place."""
    needed: set[int] = set()
    pending = [v.source for v in values(returned) if isinstance(v.source, int)]
    pending += [number for number, step in enumerate(steps) if writes(step)]
    while pending:
        number = pending.pop()
        if number not in needed:
            needed.add(number)
            used = values((steps[number].args, steps[number].kwargs))
            pending += [v.source for v in used if isinstance(v.source, int)]
    new = {old: place for place, old in enumerate(sorted(needed))}

    def change(value: Value) -> Value:
        if isinstance(value.source, int):
            return value._replace(source=new[value.source])
        return value

    return [with_values(steps[old], change) for old in new], moved(returned, change)
