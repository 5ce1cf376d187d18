"""Loops over the layers of a list, as one step each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .calls import Step, Value, values
from .steps import element, moved, with_values
from .tree import indices_text


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
    def order(self) -> str:
        """In which order the layers are called, where not one after the other."""
        if all(b - a == 1 for a, b in itertools.pairwise(self.indices)):
            return ""
        if all(a - b == 1 for a, b in itertools.pairwise(self.indices)):
            return " from the last to the first"
        return f" in the order {indices_text(self.indices)}"

    @property
    def pattern(self) -> tuple[tuple[Any, ...], ...]:
        """The units behind the first one, up to where they repeat themselves."""
        later = self.units[1:]
        for period in range(1, len(later)):
            if all(one == other for one, other in zip(later, later[period:], strict=False)):
                return later[:period]
        return later


def rolled(steps: Sequence[Step], returned: Any) -> tuple[list[Step], Any, dict[int, Loop]]:
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
            found.append(with_values(steps[place], change))
            place += 1
            continue
        starts = [place + size * number for number in range(count)]
        listed = [element(steps[start].name) for start in starts]
        name = next(one[0] for one in listed if one is not None)
        units = tuple(_relative(steps, start, size) for start in starts)
        first = with_values(replace(steps[place], results=()), change)
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
        step = with_values(second, renamed)
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
