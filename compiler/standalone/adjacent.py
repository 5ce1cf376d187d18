"""Adjacent: what one line binds and the next one reads is one line."""

from __future__ import annotations

from collections import Counter
from typing import Any

import libcst as cst

from .. import tree
from ..inline import in_evaluation_order
from .local_names import bindings, stores_of
from .program import Program
from .purity import is_pure
from .substitute import substituted

SHORT_VALUE = 40  # columns of a value that the next line may hold as well


def adjacent_joined(function: cst.FunctionDef, program: Program, ours: bool) -> cst.FunctionDef:
    """`a = f(x)` and then `b = a`, or a short `a = ...` that the next line begins with."""
    loads = Counter(tree.loaded_names(function.body))
    stores = stores_of(function)

    def block(statements: Any) -> list[Any]:
        out: list[Any] = []
        for statement in statements:
            joined = together(out[-1], statement) if out else None
            if joined is not None:
                out[-1] = joined
            else:
                out.append(
                    statement
                    if isinstance(statement, (cst.SimpleStatementLine, cst.FunctionDef))
                    else tree.rebuild(statement, inside)
                )
        return out

    def inside(child: Any) -> Any:
        if isinstance(child, cst.IndentedBlock):
            body = block(child.body)
            return (
                child
                if len(body) == len(child.body)
                and all(a is b for a, b in zip(body, child.body, strict=True))
                else child.with_changes(body=body)
            )
        return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

    def together(first: Any, second: Any) -> Any:
        bound = list(bindings([first])) if isinstance(first, cst.SimpleStatementLine) else []
        if len(bound) != 1 or not isinstance(second, cst.SimpleStatementLine):
            return None
        _, name, value = bound[0]
        small = second.body[0]
        if loads[name] != 1 or stores[name] != 1 or len(second.body) != 1:
            return None
        if not ours and name in program.read_before:
            return None
        if name not in tree.loaded_names(second) or any(x.comment for x in second.leading_lines):
            return None
        whole = isinstance(small, cst.Assign) and isinstance(small.value, cst.Name)
        trailing = second.trailing_whitespace
        if first.trailing_whitespace.comment is not None:
            if not whole or trailing.comment is not None:
                return None
            trailing = first.trailing_whitespace
        if not whole:
            if not isinstance(small, (cst.Assign, cst.Return)):
                return None
            width, rest = len(tree.code(value)), len(tree.code(small))
            short = width <= SHORT_VALUE or (width <= 2 * SHORT_VALUE and width + rest <= 90)
            short &= not isinstance(value, cst.Tuple)
            calls = any(
                isinstance(i, cst.Call)
                and tree.dotted(i.func) in program.statements.keys() | program.pending.keys()
                for i in tree.walk(value)
            )
            first_of_all = is_pure(value) or _comes_first(small.value, name)
            if not short or calls or not first_of_all:
                return None
        return second.with_changes(
            leading_lines=first.leading_lines,
            body=[substituted(small, {name: value})],
            trailing_whitespace=trailing,
        )

    body = block(tree.body_of(function))
    same = len(body) == len(tree.body_of(function))
    changed = not same or any(a is not b for a, b in zip(body, tree.body_of(function), strict=True))
    return tree.with_body(function, body) if changed else function


def _comes_first(value: Any, name: str) -> bool:
    """Whether nothing that acts is evaluated before a name."""
    for node in in_evaluation_order(value):
        if isinstance(node, cst.Name) and node.value == name:
            return True
        if not is_pure(node):
            return False
    return False
