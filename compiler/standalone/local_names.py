"""Local names of a function: how often each is bound, and to what."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import libcst as cst

from .. import tree
from .purity import is_literal, is_pure
from .substitute import renamed_everywhere


@functools.lru_cache(maxsize=1 << 12)
def stores_of(function: cst.FunctionDef) -> Counter[str]:
    """How often each name is bound, parameters included."""
    found: Counter[str] = Counter(p.name.value for p in tree.every_parameter(function))
    for item in tree.walk(function.body):
        if type(item) not in _STORING:
            continue
        if isinstance(item, (cst.FunctionDef, cst.Lambda)):
            found.update(p.name.value for p in tree.every_parameter(item))
            if isinstance(item, cst.FunctionDef):
                found[item.name.value] += 2
        if isinstance(item, (cst.AugAssign, cst.For, cst.CompFor, cst.Del, cst.AsName)):
            found.update(dict.fromkeys(tree.bound_names(item), 2))
        elif isinstance(item, (cst.Assign, cst.AnnAssign, cst.NamedExpr)):
            found.update(tree.bound_names(item))
    return found


_STORING = frozenset(
    {cst.FunctionDef, cst.Lambda, cst.AugAssign, cst.For, cst.CompFor, cst.Del, cst.AsName,
     cst.Assign, cst.AnnAssign, cst.NamedExpr}
)  # fmt: skip


def bindings(statements: Iterable[Any]) -> Iterable[tuple[Any, str, cst.BaseExpression]]:
    """`name = value` lines, at any depth that is no loop."""
    for statement in statements:
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            small = statement.body[0]
            if isinstance(small, cst.Assign) and len(small.targets) == 1:
                target, value = small.targets[0].target, small.value
            elif isinstance(small, cst.AnnAssign) and small.value is not None:
                target, value = small.target, small.value
            else:
                continue
            if isinstance(target, cst.Name):
                yield statement, target.value, value
        elif isinstance(statement, cst.If):
            yield from bindings(tree.body_of(statement))
            if isinstance(statement.orelse, cst.If):
                yield from bindings([statement.orelse])
            elif statement.orelse is not None:
                yield from bindings(tree.body_of(statement.orelse))


def bound_once(function: cst.FunctionDef) -> frozenset[str]:
    """Names, of parameters and locals, that hold one thing for the whole of a call."""
    found = {n for n, count in stores_of(function).items() if count == 1}
    return frozenset(found | {"None", "True", "False"})


def choices(function: cst.FunctionDef, steady: frozenset[str]) -> dict[str, cst.BaseExpression]:
    """Locals that are one of two literals by a test of what stays as it is."""
    return {
        name: value
        for _, name, value in bindings(tree.body_of(function))
        if name in steady and is_choice(value) and set(tree.loaded_names(cst.Expr(value))) <= steady
    }


def is_choice(value: cst.BaseExpression) -> bool:
    """`"a" if test else "b"`"""
    return (
        isinstance(value, cst.IfExp)
        and is_pure(value.test)
        and is_literal(value.body)
        and is_literal(value.orelse)
    )


def compared_only(name: str, function: cst.FunctionDef) -> bool:
    """Whether a name is read for nothing but `name == literal`."""
    compared = {
        id(item.left)
        for item in tree.walk(function.body)
        if isinstance(item, cst.Comparison)
        and len(item.comparisons) == 1
        and isinstance(item.comparisons[0].operator, cst.Equal)
        and is_literal(item.comparisons[0].comparator)
    }
    return all(
        id(item) in compared
        for item in tree.walk_loads(function.body)
        if isinstance(item, cst.Name) and item.value == name
    )


def stored_through(name: str, function: cst.FunctionDef) -> bool:
    """Whether something is stored into what a name holds, `name.a = ...`, `name[i] = ...`."""
    for item in tree.walk(function.body):
        if isinstance(item, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign)):
            target: Any = item.target
            while isinstance(target, (cst.Attribute, cst.Subscript)):
                target = target.value
                if isinstance(target, cst.Name) and target.value == name:
                    return True
    return False


def assignment(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], value)])


def renamed_local(function: cst.FunctionDef, old: str, new: str) -> cst.FunctionDef:
    """The function with a local or parameter under another name, where that is free."""
    taken = set(stores_of(function)) | set(tree.loaded_names(function.body))
    if old not in taken or new in taken:
        return function
    result: cst.FunctionDef = renamed_everywhere(function, {old: new})
    return result
