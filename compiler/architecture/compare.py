"""Compare: how the second of two architectures differs from the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from .align import align
from .changed_facts import changed_facts, in_order
from .config_numbers import config_changes
from .difference import Change, ChangeKind, Difference, FactChange
from .step_lines import first_difference, step_lines
from .tree import Architecture, Part, Value, Weight

# A weight's shape follows from the facts of these.
_SHAPED = {
    "norm": ("size",),
    "linear": ("experts", "in", "out"),
    "output": ("size", "vocabulary"),
    "embedding": ("size", "vocabulary", "positions", "rows"),
}


def compare(before: Architecture, after: Architecture) -> Difference:
    """Every part of both, paired where there are two; the classes' names do not count.

    `compare(after, before)` is the same difference with its sides swapped. It is empty iff the two
    are the same but for names of classes.
    """
    root = _change(before.root, after.root, "", "")
    config = config_changes(before.numbers, after.numbers, root)
    if root.empty and not config:
        root = _exactly(root)
    return Difference(before, after, root, config)


def _change(before: Part | None, after: Part | None, path_before: str, path_after: str) -> Change:
    path = path_before if after is None else path_after
    if before is None or after is None:
        return Change("removed" if after is None else "added", path, before, after)
    if before.kind != after.kind:
        inner = _unwrapped(before, after.kind), _unwrapped(after, before.kind)
        if inner[0] is not None:
            return _change(inner[0], after, f"{path_before}{_last(inner[0])}", path_after)
        if inner[1] is not None:
            return _change(before, inner[1], path_before, f"{path_after}{_last(inner[1])}")
        facts = tuple(_placed(before, after))
        return Change("replaced", path, before, after, facts)
    steps: tuple[str, ...] = ()
    if _steps_differ(before, after):
        steps = step_lines(before.operations, after.operations)
    facts = tuple(_own(before, after))
    children = tuple(
        _change(one, other, _below(path_before, one), _below(path_after, other))
        for one, other in align(before.children, after.children)
    )
    kind: ChangeKind = "changed" if facts or steps else "same"
    return Change(kind, path, before, after, facts, steps, children)


def _unwrapped(part: Part, kind: str) -> Part | None:
    """What a module that only calls its one child stands for, where that is of the kind."""
    if part.kind != "module" or len(part.children) != 1 or part.weights or part.indices:
        return None
    (child,) = part.children
    if child.kind != kind or child.indices or part.operations != (f"return {child.name}(x)",):
        return None
    return dataclasses.replace(child, name=f"{part.name}.{child.name}")


def _last(part: Part) -> str:
    return "." + part.name.rpartition(".")[2]


def _below(path: str, part: Part | None) -> str:
    if part is None:
        return ""
    return f"{path}.{part.segment}" if path else part.segment


def _own(before: Part, after: Part) -> Iterator[FactChange]:
    yield from _placed(before, after)
    # What a tied weight starts as is said where it is its own.
    tied = {weight.name for part in (before, after) for weight in part.weights if weight.tied_to}
    unsaid = {"init" if name == "weight" else f"init {name}" for name in tied}
    for fact in changed_facts(before.facts, after.facts):
        if fact.name not in unsaid:
            yield fact
    yield from _weights(before, after)
    if _steps_differ(before, after):
        yield FactChange("forward", *first_difference(before.operations, after.operations))


def _steps_differ(before: Part, after: Part) -> bool:
    """A class of torch or the runtime has no steps: its facts say what a page's own class does."""
    known = before.kind in _SHAPED and not (before.operations and after.operations)
    return before.operations != after.operations and not known


def _placed(before: Part, after: Part) -> Iterator[FactChange]:
    """Another name, or another number of layers; a model has no name of its own."""
    if before.name != after.name and before.kind != "model":
        yield FactChange("name", before.name, after.name)
    if len(before.indices) != len(after.indices):
        yield FactChange("layers", before.times, after.times)
    elif before.indices != after.indices:
        yield FactChange("places", before.segment, after.segment)


def _weights(before: Part, after: Part) -> Iterator[FactChange]:
    old = {weight.name: weight for weight in before.weights}
    new = {weight.name: weight for weight in after.weights}
    sized = {name for name in _SHAPED.get(before.kind, ()) if before.fact(name) != after.fact(name)}
    for name in in_order(list(old), list(new)):
        one, other = old.get(name), new.get(name)
        if one is None or other is None:
            if before.fact(name) is not None and before.fact(name) != after.fact(name):
                continue  # "bias" is a fact as well
            yield FactChange(f"weight {name}", _shape(one), _shape(other))
            continue
        if one.shape != other.shape and not sized:
            yield FactChange(f"weight {name}", one.shape, other.shape)
        if bool(one.tied_to) != bool(other.tied_to) and before.kind != "output":
            yield FactChange(f"tied {name}", one.tied_to, other.tied_to)
        if one.cut != other.cut:
            yield FactChange(f"cut {name}", one.cut, other.cut)


def _shape(weight: Weight | None) -> Value:
    return None if weight is None else weight.shape


def _exactly(change: Change) -> Change:
    """Where nothing else in two models differs, the sizes in their steps may."""
    children = tuple(_exactly(child) for child in change.children)
    before, after = change.before, change.after
    if before is None or after is None or before.exact == after.exact:
        return dataclasses.replace(change, children=children)
    facts = tuple(_ties(before, after))
    if before.detail != after.detail or not facts:
        facts += (FactChange("forward", *_first(before, after)),)
    steps = step_lines(before.detail, after.detail)
    return dataclasses.replace(change, kind="changed", facts=facts, steps=steps, children=children)


def _first(before: Part, after: Part) -> tuple[str, str]:
    """The first steps that differ; where no line does, what a digest says of the rest: buffers, and
    which layer of a loop is given what."""
    lines = first_difference(before.detail, after.detail)
    if lines[0] != lines[1]:
        return lines
    return f"steps of digest {before.exact}", f"steps of digest {after.exact}"


def _ties(before: Part, after: Part) -> Iterator[FactChange]:
    new = {weight.name: weight for weight in after.weights}
    for one in before.weights:
        other = new.get(one.name)
        if other is not None and one.tied_to != other.tied_to:
            yield FactChange(f"tied {one.name}", one.tied_to, other.tied_to)
