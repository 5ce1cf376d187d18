"""Shared state: what all instances of a class share, its several classes would each have for
itself.

A class attribute that is stored, a list in the body of a class or in a default: they are one thing
for every instance. Where the page writes the instances as several classes, they would become
several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from . import tree
from .errors import refuse
from .flatten import Flat

if TYPE_CHECKING:
    from .facts import Facts
    from .kinds import Kind
    from .residual import Residual

_FRESH = (cst.List, cst.Dict, cst.Set, cst.ListComp, cst.DictComp, cst.SetComp)
_MUTATING = frozenset(
    {
        "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "add",
        "discard", "setdefault", "popitem",
    }
)  # fmt: skip


def refuse_split_state(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Raise a CompileError where one author's class with shared state is several classes of the
    page."""
    count: dict[type, int] = {}
    for residual in residuals.values():
        for owner in residual.flat.chain:
            count[owner] = count.get(owner, 0) + 1
    for residual in residuals.values():
        for owner in residual.flat.chain:
            if count[owner] > 1:
                for node in _shared(owner, residual.flat, facts):
                    refuse(
                        "SP328",
                        f"`{owner.__name__}` becomes several classes of the page, and all its "
                        f"instances share what this "
                        "line makes",
                        facts.sources.span(node, owner),
                        help="keep it in an attribute of each instance, or in a name of the module",
                    )


def _shared(owner: type, flat: Flat, facts: Facts) -> Iterator[cst.CSTNode]:
    definition = facts.sources.class_def(owner)
    assert definition is not None
    for statement in tree.body_of(definition):
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, (cst.Assign, cst.AnnAssign)) and isinstance(
                    small.value, (*_FRESH, cst.Call)
                ):
                    yield small
        elif isinstance(statement, cst.FunctionDef):
            for param in tree.every_parameter(statement):
                if isinstance(param.default, (*_FRESH, cst.Call)):
                    yield param.default
            for attribute in tree.stored_attributes(statement):
                if _is_the_class(attribute.value, statement):
                    yield attribute


def _is_the_class(node: cst.BaseExpression, method: cst.FunctionDef) -> bool:
    """`type(self)`, `self.__class__`, and `cls` of a class method."""
    if isinstance(node, cst.Call):
        return tree.dotted(node.func) == "type"
    if isinstance(node, cst.Attribute):
        return node.attr.value == "__class__"
    first = method.params.params[0].name.value if method.params.params else ""
    return isinstance(node, cst.Name) and node.value == first and first != "self"


def changes_a_list(flat: Flat) -> cst.CSTNode | None:
    """The first statement of a class that may change a list which it did not make: one from the
    spec's params is the spec's own, shared by all that it builds."""
    for method in flat.every_method():
        fresh = _fresh_names(method.node)
        for node in tree.walk(method.node):
            called = node.func if isinstance(node, cst.Call) else None
            mutates = isinstance(called, cst.Attribute) and called.attr.value in _MUTATING
            if mutates and _root(called.value) not in fresh:  # type: ignore[union-attr]
                return node
            targets: list[cst.CSTNode] = []
            if isinstance(node, cst.Assign):
                targets = [t.target for t in node.targets]
            elif isinstance(node, (cst.AugAssign, cst.Del)):
                targets = [node.target]
            for target in targets:
                changed = isinstance(target, cst.Subscript) or (
                    isinstance(node, cst.AugAssign) and isinstance(node.value, _FRESH)
                )
                if changed and _root(target) not in fresh:
                    return node
    return None


def _fresh_names(function: cst.FunctionDef) -> set[str]:
    """Locals that only ever stand for lists made in the function, or for new modules of `self`."""
    bound: dict[str, bool] = {}
    for node in tree.walk(function):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    made = isinstance(node.value, _FRESH)
                    bound[target.target.value] = made and bound.get(target.target.value, True)
    return {name for name, made in bound.items() if made}


def _root(node: cst.CSTNode) -> str:
    while isinstance(node, cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""
