"""What a function binds to names and attributes: expressions, kinds, and what annotations say."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import libcst as cst

from .. import tree

Kind = frozenset[str]
UNKNOWN: Kind = frozenset({"?"})
SOME: Kind = frozenset({"some"})


def elements_of(value: Any, count: int) -> list[Any]:
    if isinstance(value, cst.Tuple) and len(value.elements) == count:
        return [e.value for e in value.elements]
    if isinstance(value, Each) and isinstance(value.over, cst.Call):
        dotted = tree.dotted(value.over.func)
        args = [a.value for a in value.over.args]
        if dotted == "enumerate" and count == 2 and args:
            return [SOME, Each(args[0])]
        if dotted == "zip" and len(args) >= count:
            return [Each(a) for a in args[:count]]
    if isinstance(value, cst.Call):
        return [Unpacked(value)] * count
    return [UNKNOWN] * count


class Unpacked:
    """A part of what a call returns."""

    def __init__(self, call: cst.Call) -> None:
        self.call = call


@functools.lru_cache(maxsize=1 << 13)
def bound_in(function: cst.FunctionDef) -> dict[str, list[Any]]:
    """What a function binds to each name: expressions, kinds, and what annotations say."""
    bound: dict[str, list[Any]] = {}
    for position, param in enumerate(tree.every_parameter(function)):
        value: Any = Said(
            param.annotation,
            isinstance(param.default, cst.Name) and param.default.value == "None",
        )
        if position == 0 and param.name.value == "self":
            value = SELF
        elif param in (function.params.star_arg, function.params.star_kwarg):
            value = SOME
        bound[param.name.value] = [value]

    def bind(target: Any, value: Any) -> None:
        if isinstance(target, cst.Name):
            bound.setdefault(target.value, []).append(value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            values = elements_of(value, len(target.elements))
            for element, part in zip(target.elements, values, strict=True):
                bind(element.value, part)
        elif isinstance(target, cst.StarredElement):
            bind(target.value, SOME)

    for item in tree.own(function):
        kind = type(item)
        if kind is cst.Assign:
            for target in item.targets:  # type: ignore[attr-defined]
                bind(target.target, item.value)  # type: ignore[attr-defined]
        elif kind not in _BINDING:
            continue
        elif isinstance(item, cst.AnnAssign):
            said = Said(item.annotation, False)
            bind(item.target, said if item.value is None else item.value)
        elif isinstance(item, (cst.For, cst.CompFor)):
            bind(item.target, Each(item.iter))
        elif isinstance(item, cst.NamedExpr):
            bind(item.target, item.value)
        elif isinstance(item, cst.FunctionDef):
            bound.setdefault(item.name.value, []).append(SOME)
        else:
            for name in tree.stored_names(item):
                bound.setdefault(name, []).append(UNKNOWN)
    return bound


_BINDING = frozenset(
    {cst.AnnAssign, cst.For, cst.CompFor, cst.NamedExpr, cst.FunctionDef, cst.AugAssign,
     cst.AsName, cst.Del, cst.Import, cst.ImportFrom}
)  # fmt: skip


SELF: Kind = frozenset({"self"})


@dataclass(frozen=True)
class Said:
    """What an annotation says, and whether the default is None."""

    annotation: cst.Annotation | None
    or_none: bool


class Each:
    """An element of what is iterated."""

    def __init__(self, over: cst.BaseExpression) -> None:
        self.over = over


@functools.lru_cache(maxsize=1 << 13)
def stored_in(function: cst.FunctionDef) -> tuple[tuple[str, Any], ...]:
    """What a method stores in attributes of `self`."""
    found: list[tuple[str, Any]] = []
    for item in tree.walk(function):
        pairs: list[tuple[Any, Any]] = []
        kind = type(item)
        if kind is cst.Assign:
            pairs = [(t.target, item.value) for t in item.targets]  # type: ignore[attr-defined]
        elif kind not in (cst.AnnAssign, cst.AugAssign, cst.For):
            continue
        elif isinstance(item, cst.AnnAssign):
            said = Said(item.annotation, False)
            pairs = [(item.target, said if item.value is None else item.value)]
        elif isinstance(item, (cst.AugAssign, cst.For)):
            pairs = [(item.target, UNKNOWN)]
        for target, value in pairs:
            inner: list[tuple[Any, Any]] = [(target, value)]
            if isinstance(target, cst.Tuple):
                parts = elements_of(value, len(target.elements))
                inner = [(e.value, p) for e, p in zip(target.elements, parts, strict=True)]
            for one, part in inner:
                name = tree.self_attribute(one)
                if name is not None:
                    found.append((name, part))
    return tuple(found)
