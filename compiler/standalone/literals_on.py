"""Literals on: a name bound to a literal is that literal, up to where it is bound anew."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .local_names import bindings
from .purity import is_literal
from .substitute import substituted


def literals_on(function: cst.FunctionDef) -> cst.FunctionDef:
    """`x = None` reaches what follows in its block, up to where `x` is bound anew."""

    def block(statements: Any, outermost: bool) -> list[Any]:
        body = [statement(s) for s in statements]
        for position, line in enumerate(body):
            bound = list(bindings([line])) if isinstance(line, cst.SimpleStatementLine) else []
            if len(bound) != 1 or not is_literal(bound[0][2]):
                continue
            _, name, value = bound[0]
            rest, ended = _carried_on(name, value, body[position + 1 :])
            if ended:
                return [*body[:position], *block(rest, outermost)]
            body = [*body[: position + 1], *rest]
        return body

    def statement(node: Any) -> Any:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.SimpleStatementLine)):
            return node
        return tree.rebuild(node, inside)

    def inside(child: Any) -> Any:
        if isinstance(child, cst.IndentedBlock):
            body = block(child.body, False)
            same = len(body) == len(child.body) and all(
                a is b for a, b in zip(body, child.body, strict=True)
            )
            return child if same else child.with_changes(body=body)
        return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

    old = tree.body_of(function)
    body = block(old, True)
    same = len(body) == len(old) and all(a is b for a, b in zip(body, old, strict=True))
    return function if same else tree.with_body(function, body)


def _carried_on(
    name: str, value: cst.BaseExpression, statements: list[Any]
) -> tuple[list[Any], bool]:
    """The statements with a name's literal put in, and whether they bind it anew before its end."""
    out: list[Any] = []
    for position, statement in enumerate(statements):
        if name not in tree.stored_names(statement) and not isinstance(
            statement, (cst.FunctionDef, cst.ClassDef)
        ):
            out.append(substituted(statement, {name: value}))
            continue
        rest = statements[position + 1 :]
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            small = statement.body[0]
            if isinstance(small, cst.Assign):
                new = small.with_changes(value=substituted(small.value, {name: value}))
                line = statement if new.value is small.value else statement.with_changes(body=[new])
                return [*out, line, *rest], True
        if isinstance(statement, cst.If):
            test = substituted(statement.test, {name: value})
            statement = statement if test is statement.test else statement.with_changes(test=test)
        return [*out, statement, *rest], False
    return out, False
