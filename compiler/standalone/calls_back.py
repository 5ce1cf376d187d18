"""Calls back: text that is what a module's forward computes is a call of that module again.

The head's loss reads the weight of the output layer, since a layer cut over processes must not hand
out its logits; in one process that is the layer called.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .inline_calls import as_expression
from .kinds_of import NONE, kinds_of
from .program import Program
from .purity import is_pure
from .substitute import substituted


def call_modules(program: Program) -> None:
    """`F.linear(x, self.a.weight.to(x.dtype))` is `self.a(x)` again, in the page's classes."""
    kinds = kinds_of(program)

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        if owner is None or owner in program.ours:
            return function
        names = kinds.environment(owner, function)
        children = {
            tree.code(i): i
            for i in tree.walk(function.body)
            if isinstance(i, cst.Attribute) and tree.self_attribute(i) is not None
        }
        patterns: dict[str, cst.BaseExpression] = {}
        for child in children.values():
            for text, call in _patterns(child, kinds.of(child, names) - NONE, names, program):
                patterns.setdefault(text, call)
        if not patterns:
            return function
        new = tree.replace(function, lambda node: _call(node, patterns))
        return _hoisted(new) if new is not function else function

    program.change_functions(change)


def _patterns(
    child: cst.Attribute, kind: frozenset[str], names: Any, program: Program
) -> list[tuple[str, cst.BaseExpression]]:
    """What a child's forward is of each local name, with the call that it is."""
    if len(kind) != 1 or not kind <= program.ours:
        return []
    forward = program.method(next(iter(kind)), "forward")
    value = None if forward is None else as_expression(forward)
    params = [] if forward is None else tree.parameters(forward)
    if value is None or len(params) != 2:
        return []
    found: list[tuple[str, cst.BaseExpression]] = []
    for name in names:
        mapping = {"self": child, params[1].name.value: cst.Name(name)}
        call = cst.Call(child, [cst.Arg(cst.Name(name))])
        found.append((_key(substituted(value, mapping)), call))
    return found


def _call(node: cst.CSTNode, patterns: dict[str, cst.BaseExpression]) -> cst.CSTNode | None:
    return patterns.get(_key(node)) if isinstance(node, cst.Call) else None


def _key(node: cst.CSTNode) -> str:
    return "".join(tree.code(node).split())


def _hoisted(function: cst.FunctionDef) -> cst.FunctionDef:
    """`if t: return f(x)` before `y = f(x)` is `y = f(x)` before `if t: return y`."""
    body = list(tree.body_of(function))
    for position in range(len(body) - 1):
        choice, line = body[position], body[position + 1]
        if not isinstance(choice, cst.If) or choice.orelse is not None or not is_pure(choice.test):
            continue
        inner = tree.body_of(choice)
        if len(inner) != 1 or not isinstance(inner[0], cst.SimpleStatementLine):
            continue
        leaving = inner[0].body[0]
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        if not isinstance(leaving, cst.Return) or not isinstance(small, cst.Assign):
            continue
        target = small.targets[0].target
        if leaving.value is None or not isinstance(target, cst.Name):
            continue
        if _key(leaving.value) != _key(small.value) or target.value in tree.loaded_names(choice):
            continue
        returned = inner[0].with_changes(body=[leaving.with_changes(value=target)])
        first = line.with_changes(leading_lines=choice.leading_lines)
        second = tree.with_body(choice, [returned]).with_changes(leading_lines=line.leading_lines)
        body[position : position + 2] = [first, second]
        return tree.with_body(function, body)
    return function
