"""A forward's steps, prepared for reading: what a `Sequential` does is its caller's, what nothing
uses is left out, a loop over the layers of a list is one step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .calls import ModuleCall, Name, Step, Value, values

_ELEMENT = re.compile(r"^(?:(?P<list>.+)\.)?(?P<index>\d+)$")


@dataclass(frozen=True)
class Loop:
    """Steps of a list's layers, each unit fed by the one before it.

    `units`: the layers and the steps between, written relative to their place; equal ones are the
    same computation. `indices`: the layers that the units call.

    `body`: the steps of one unit, numbered from 0, the layer without its number. What it takes from
    the unit before it is called "before 1", after the step there, what stands before the loop
    "outside 3"; `initial` has, for each of the former, what the first unit takes instead.
    """

    name: str
    indices: tuple[int, ...]
    units: tuple[tuple[Any, ...], ...]
    body: tuple[Step, ...]
    initial: tuple[tuple[Value, Value], ...]

    @property
    def pattern(self) -> tuple[tuple[Any, ...], ...]:
        """The units behind the first one, up to where they repeat themselves."""
        later = self.units[1:]
        for period in range(1, len(later)):
            if all(one == other for one, other in zip(later, later[period:], strict=False)):
                return later[:period]
        return later


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
    rolled, returned, found = _rolled(steps, returned)
    return Flow(call.inputs, tuple(rolled), returned, found)


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


def _with(step: Step, change: Callable[[Value], Any]) -> Step:
    return replace(
        step,
        args=moved(step.args, change),
        kwargs=moved(step.kwargs, change),
        results=moved(step.results, change),
    )


def _spliced(
    call: ModuleCall, sequential: Callable[[str], ModuleCall | None]
) -> tuple[list[Step], Any]:
    found: list[Step] = []
    known: dict[tuple[int | str, int], Value] = {}  # what a value of the call's is called now

    def now(value: Value) -> Value:
        return known.get((value.source, value.part), value)

    for number, step in enumerate(call.steps):
        step = _with(step, now)
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
            changed = _with(one, outer)
            child = f"{step.name}.{one.name}" if one.kind == "child" else one.name
            found.append(replace(changed, name=child))
        results = list(values(moved(inner_returned, outer)))
        for old, new in zip(call.steps[number].results, results, strict=False):
            known[old.source, old.part] = new
    return found, moved(call.returned, now)


def writes(step: Step) -> bool:
    """Whether a step changes one of its arguments."""
    name = step.name
    return step.kind == "torch" and (
        name == "__setitem__" or (name.endswith("_") and not name.startswith("__"))
    )


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

    return [_with(steps[old], change) for old in new], moved(returned, change)


def _rolled(steps: Sequence[Step], returned: Any) -> tuple[list[Step], Any, dict[int, Loop]]:
    """Each loop over a list's layers as one step."""
    found: list[Step] = []
    loops: dict[int, Loop] = {}
    new: dict[int, int] = {}  # a step's place here; of a loop's last unit the loop's
    parts: dict[tuple[int, int], int] = {}  # where a loop's unit has several steps

    def change(value: Value) -> Value:
        if isinstance(value.source, int):
            part = parts.get((value.source, value.part), value.part)
            return value._replace(source=new[value.source], part=part)
        return value

    place = 0
    while place < len(steps):
        size, count = _loop_at(steps, place, returned)
        if count < 2:
            new[place] = len(found)
            found.append(_with(steps[place], change))
            place += 1
            continue
        starts = [place + size * number for number in range(count)]
        listed = [element(steps[start].name) for start in starts]
        name = next(one[0] for one in listed if one is not None)
        units = tuple(_relative(steps, start, size) for start in starts)
        first = _with(replace(steps[place], results=()), change)
        results: list[Value] = []
        for number in range(starts[-1], starts[-1] + size):
            new[number] = len(found)
            for one in steps[number].results:
                part = one.part if size == 1 else len(results)
                parts[number, one.part] = part
                results.append(one._replace(source=len(found), part=part))
        body, initial = _body(steps, place, size, change)
        indices = tuple(one[1] for one in listed if one is not None)
        loops[len(found)] = Loop(name, indices, units, body, initial)
        found.append(replace(first, name=name, results=tuple(results)))
        place += size * count
    return found, moved(returned, change), loops


def _body(
    steps: Sequence[Step], place: int, size: int, change: Callable[[Value], Value]
) -> tuple[tuple[Step, ...], tuple[tuple[Value, Value], ...]]:
    """`Loop.body` and `Loop.initial` of a loop whose first unit begins at `place`."""
    start = place + size

    def renamed(value: Value) -> Value:
        if not isinstance(value.source, int):
            return value
        if value.source >= start:
            return value._replace(source=value.source - start)
        if value.source >= place:
            return value._replace(source=f"before {value.source - place}")
        new = change(value)
        return new._replace(source=f"outside {new.source}")

    body: list[Step] = []
    initial: dict[tuple[int | str, int], tuple[Value, Value]] = {}
    for first, second in zip(steps[place:start], steps[start : start + size], strict=True):
        step = _with(second, renamed)
        listed = element(step.name) if step.kind == "child" else None
        body.append(replace(step, name=listed[0]) if listed else step)
        pairs = zip(
            values((step.args, step.kwargs)), values((first.args, first.kwargs)), strict=False
        )
        for later, given in pairs:
            if str(later.source).startswith("before "):
                initial.setdefault((later.source, later.part), (later, change(given)))
    return tuple(body), tuple(initial.values())


_LONGEST = 8  # steps between one layer of a loop and the next


def _loop_at(steps: Sequence[Step], place: int, returned: Any) -> tuple[int, int]:
    """How many steps a unit of the loop that begins here has, and how many units there are."""
    first = _layer(steps, place)
    if first is None:
        return 1, 1
    for size in range(1, _LONGEST + 1):
        if place + 2 * size > len(steps):
            break
        following = _layer(steps, place + size)
        if following is None or following[0] != first[0] or not _alike(steps, place, size):
            continue
        count, before = 2, _relative(steps, place + size, size)
        shapes = [_names(before)]
        while True:
            start = place + size * count
            layer = _layer(steps, start)
            if layer is None or layer[0] != first[0] or start + size > len(steps):
                break
            unit = _relative(steps, start, size)
            if unit != before and _names(unit) not in shapes:
                break
            before, count = unit, count + 1
        # What a unit gives inside is the loop's alone: only the last one's values go on.
        if not _leaks(steps, place, size, count, returned):
            return size, count
    return 1, 1


def _alike(steps: Sequence[Step], place: int, size: int) -> bool:
    """Whether the first unit of a loop does what the second does, with other values."""

    def form(step: Step) -> Any:
        listed = element(step.name) if step.kind == "child" else None
        return listed[0] if listed else step.name, moved(
            (step.args, step.kwargs), lambda _: "value"
        )

    units = zip(steps[place : place + size], steps[place + size :], strict=False)
    return all(form(one) == form(other) for one, other in units)


def _layer(steps: Sequence[Step], place: int) -> tuple[str, int] | None:
    if place >= len(steps) or steps[place].kind != "child":
        return None
    return element(steps[place].name)


def _names(unit: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((kind, name) for kind, name, *_ in unit)


def _relative(steps: Sequence[Step], start: int, size: int) -> tuple[Any, ...]:
    """A unit of a loop without its place: what it takes from itself and the unit before is counted
    from its start."""

    def change(value: Value) -> Any:
        if isinstance(value.source, int) and value.source >= start - size:
            return ("carried", value.source - start, value.part)
        return (value.source, value.part)

    unit = []
    for step in steps[start : start + size]:
        listed = element(step.name) if step.kind == "child" else None
        name = listed[0] if listed else step.name
        # A child's own names for its arguments are local names.
        named = step.kwargs if step.kind != "child" else tuple(v for _, v in step.kwargs)
        unit.append((step.kind, name, moved(step.args, change), moved(named, change)))
    return tuple(unit)


def _leaks(steps: Sequence[Step], place: int, size: int, count: int, returned: Any) -> bool:
    """Whether a step behind the loop takes what a unit but the last gave."""
    end = place + size * count
    inner = range(place, end - size)
    later = [(step.args, step.kwargs) for step in steps[end:]]
    return any(v.source in inner for v in values((*later, returned)))
