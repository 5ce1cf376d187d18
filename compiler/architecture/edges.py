"""What flows between the children of a part, from the recorded forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .calls import Step, Value, values
from .flow import Flow
from .tree import Edge

_ADDS = {"add", "add_", "__add__", "__iadd__"}


def edges_of(flow: Flow, segment: Callable[[str], str | None], places: int) -> tuple[Edge, ...]:
    """The edges among children; `segment` gives the child that a step's child lies in.

    A sum of what a child gives and of what that child's own input came from is a residual: the
    latter goes round. Otherwise a sum hands on all that it sums.
    """
    return tuple(_Tracer(flow, segment, places).edges())


class _Tracer:
    def __init__(self, flow: Flow, segment: Callable[[str], str | None], places: int) -> None:
        self.flow, self.segment, self.places = flow, segment, places
        self.origins: dict[tuple[int | str, int], tuple[str, ...]] = {}
        self.above: dict[str, set[str]] = {}  # all that a child's input came from
        self.found: dict[tuple[str, str, bool], tuple[str, ...]] = {}
        self.rows = {
            result.shape[0]
            for step in flow.steps
            for result in step.results
            if step.name == "dispatch" and len(result.shape) == 2
        }
        for number, (word, form) in enumerate(flow.inputs):
            parts = list(values(form))
            if word in ("positions", "rotary", "labels"):
                continue
            for part, value in enumerate(parts):
                if value.dtype is not None:
                    key = (f"input {number}", -1 if len(parts) == 1 else part)
                    self.origins[key] = ("",)

    def edges(self) -> Iterator[Edge]:
        for step in self.flow.steps:
            child = self.segment(step.name) if step.kind == "child" else None
            if child is not None:
                self.child(step, child)
            elif step.name in _ADDS and step.kind == "torch":
                self.sum(step)
            else:
                self.give(step, self.of(values((step.args, step.kwargs))))
        for value in values(self.flow.returned):
            for origin in self.origin(value):
                self.add(origin, "", value, False)
        for (source, target, residual), shape in self.found.items():
            yield Edge(source, target, shape, residual)

    def child(self, step: Step, child: str) -> None:
        inputs = list(values(step.kwargs))
        above = self.above.setdefault(child, {child})
        for value in inputs:
            for origin in self.origin(value):
                self.add(origin, child, value, False)
                above |= {origin} | self.above.get(origin, set())
        self.give(step, (child,))

    def sum(self, step: Step) -> None:
        sides = [value for value in step.args[:2] if isinstance(value, Value)]
        if len(sides) == 2:
            for stream, branch in (sides, sides[::-1]):
                around, through = self.origin(stream), self.origin(branch)
                if self.is_residual(around, through):
                    (target,) = through
                    for origin in around:
                        self.add(origin, target, stream, True)
                    self.give(step, through)
                    return
        self.give(step, self.of(sides))

    def is_residual(self, around: tuple[str, ...], through: tuple[str, ...]) -> bool:
        if len(through) != 1 or not around or around == through:
            return False
        (target,) = through
        return target != "" and set(around) <= self.above.get(target, set())

    def give(self, step: Step, origins: tuple[str, ...]) -> None:
        for result in step.results:
            if result.dtype is not None:  # positions are no activations
                self.origins[result.source, result.part] = origins

    def of(self, given: Iterator[Value] | list[Value]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(o for value in given for o in self.origin(value)))

    def origin(self, value: Value) -> tuple[str, ...]:
        return self.origins.get((value.source, value.part), ())

    def add(self, source: str, target: str, value: Value, residual: bool) -> None:
        if source != target or source == "":
            self.found.setdefault((source, target, residual), self.shape(value))

    def shape(self, value: Value) -> tuple[str, ...]:
        """In letters where a dimension is the batch or the sequence, else in numbers.

        Rows of experts are `2·b·s`, or `r` where their capacity makes them another number.
        """
        shape = [self.size(n) for n in value.shape]
        if value.shape[:2] == (1, self.places):
            shape[:2] = ["b", "s"]
        elif value.shape[:2] == (self.places, 1):
            shape[:2] = ["s", "b"]
        elif len(shape) == 2 and shape[0].endswith("·s"):
            shape[0] = shape[0].replace("·s", "·b·s")
        elif value.shape and value.shape[0] in self.rows:
            shape[0] = "r" if shape[0].isdecimal() else "b·s"
        return tuple(shape)

    def size(self, number: int) -> str:
        times, more = divmod(number, self.places)
        if more or not times:
            return str(number)
        return f"{times}·s" if times > 1 else "s"
