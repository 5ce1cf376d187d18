"""Initial values as a person writes them: a parameter is made with them, not filled in after."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .program import Program

_MADE = {"1.0": "ones", "0.0": "zeros"}


def with_plain_fills(program: Program) -> None:
    """`p = empty(n)` and `constant_(p, 1.0)` are `p = ones(n)`, and `normal_(p, std=s)` after it
    is `p = empty(n).normal_(std=s)`: in the runtime's constructors, in place.
    """

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        if owner not in program.ours or function.name.value != "__init__":
            return function
        new: cst.FunctionDef = _in_block(function)
        return new

    program.change_functions(change)


def _in_block(node: Any) -> Any:
    """A statement with such pairs in its body, and in those inside it."""
    body: list[Any] = []
    for statement in tree.body_of(node):
        made = _made(body[-1], statement) if body else None
        if made is not None:
            body[-1] = made
        else:
            body.append(_in_block(statement) if isinstance(statement, cst.If) else statement)
    old = tree.body_of(node)
    same = len(body) == len(old) and all(a is b for a, b in zip(body, old, strict=True))
    return node if same else tree.with_body(node, body)


def _made(first: Any, second: Any) -> Any:
    """One statement for both, where the second fills what the first makes."""
    lines = (first, second)
    if not all(isinstance(line, cst.SimpleStatementLine) for line in lines):
        return None
    small, fill = first.body[0], second.body[0]
    if not isinstance(small, cst.Assign) or not isinstance(fill, cst.Expr):
        return None
    call = fill.value
    if not isinstance(call, cst.Call) or not call.args:
        return None
    if tree.code(call.args[0].value) != tree.code(small.targets[0].target):
        return None
    rest = call.args[1:]

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if not isinstance(node, cst.Call) or tree.dotted(node.func) != "torch.empty":
            return None
        assert isinstance(node.func, cst.Attribute)
        dotted = tree.dotted(call.func)
        if dotted == "nn.init.constant_" and len(rest) == 1:
            name = _MADE.get(tree.code(rest[0].value), "")
            return node.with_changes(func=node.func.with_changes(attr=cst.Name(name)))
        return node.with_changes(func=cst.Attribute(node, cst.Name("normal_")), args=rest)

    dotted = tree.dotted(call.func)
    constant = dotted == "nn.init.constant_" and len(rest) == 1
    if constant and tree.code(rest[0].value) not in _MADE:
        return None
    if not constant and dotted != "nn.init.normal_":
        return None
    if tree.code(small.value).count("torch.empty(") != 1:
        return None
    return first.with_changes(body=[small.with_changes(value=tree.replace(small.value, swap))])
