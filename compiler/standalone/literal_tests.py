"""Tests of literals, and expressions that are the same as shorter ones."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from ..value import Scope, Unknown, evaluate, literal
from .purity import is_literal

_NOTHING = Scope({})


def evaluated(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """What an expression of literals comes to."""
    try:
        found = evaluate(node, _NOTHING).object
    except Unknown:
        return None
    return literal(found) if found is None or type(found) in (bool, int, float, str) else None


def truth_of(node: Any) -> bool | None:
    """The truth of a literal."""
    if not is_literal(node):
        return None
    try:
        return bool(evaluate(node, _NOTHING).object)
    except Unknown:
        return None


def gives_bool(node: Any) -> bool:
    """Whether an expression is True or False, if it is no comparison of tensors."""
    if isinstance(node, cst.BooleanOperation):
        return gives_bool(node.left) and gives_bool(node.right)
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    return isinstance(node, cst.Comparison)


def is_none(node: Any) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def denied(node: cst.UnaryOperation) -> cst.BaseExpression:
    """`not a is None` is `a is not None`, and `not not a` in a test is what it denies."""
    inner = node.expression
    if isinstance(inner, cst.Comparison) and len(inner.comparisons) == 1:
        target = inner.comparisons[0]
        opposite = {cst.Is: cst.IsNot, cst.IsNot: cst.Is, cst.In: cst.NotIn, cst.NotIn: cst.In}
        other = opposite.get(type(target.operator))
        if other is not None:
            new = inner.with_changes(comparisons=[target.with_changes(operator=other())])
            return new.with_changes(lpar=node.lpar, rpar=node.rpar)
    return node


def compared_choice(choice: cst.IfExp, right: cst.BaseExpression) -> cst.BaseExpression | None:
    """`("a" if test else "b") == "a"` is `test`."""
    if not (is_literal(choice.body) and is_literal(choice.orelse) and is_literal(right)):
        return None
    answers = [
        evaluated(cst.Comparison(part, [cst.ComparisonTarget(cst.Equal(), right)]))
        for part in (choice.body, choice.orelse)
    ]
    texts = [tree.code(a) if a is not None else "" for a in answers]
    if texts == ["True", "False"]:
        return tree.parenthesised(choice.test)
    if texts == ["False", "True"]:
        return cst.UnaryOperation(cst.Not(), tree.parenthesised(choice.test))
    return answers[0] if texts[0] == texts[1] else None


def words_of(node: cst.BaseExpression) -> str:
    """An expression's text, however it is broken."""
    return " ".join(tree.code(tree.bare(node)).split())


def without_stars(call: cst.Call) -> cst.Call:
    """`f(*(a, b))` is `f(a, b)`."""
    if not any(a.star == "*" and isinstance(a.value, cst.Tuple) for a in call.args):
        return call
    args: list[cst.Arg] = []
    for arg in call.args:
        if arg.star == "*" and isinstance(arg.value, cst.Tuple):
            args += [
                cst.Arg(e.value, star="*" if isinstance(e, cst.StarredElement) else "")
                for e in arg.value.elements
            ]
        else:
            args.append(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT))
    return call.with_changes(args=args)
