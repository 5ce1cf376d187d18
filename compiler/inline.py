"""Inline: a local bound and used once in adjacent statements, where folding removed what stood
between.

y = self.mlp(x)                    y is read once, in the statement after, and everything
[a folded-away dropout]    ->      return x + self.mlp(x)
return x + y                       evaluated before it there is a name or an attribute.
"""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from . import tree
from .facts import Facts


def inline_adjacent(function: cst.FunctionDef, facts: Facts) -> cst.FunctionDef:
    """The function with such pairs joined, the first of each gone."""

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            body = _join([change(s) for s in node.body], function, node is function.body, facts)
            same = len(body) == len(node.body) and all(
                a is b for a, b in zip(body, node.body, strict=True)
            )
            return node if same else node.with_changes(body=body)
        return (
            node
            if isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement))
            else tree.rebuild(node, change)
        )

    result: cst.FunctionDef = tree.rebuild(function, change)
    return result


def _join(
    statements: list[Any], function: cst.FunctionDef, outermost: bool, facts: Facts
) -> list[Any]:
    out: list[Any] = []
    for position, statement in enumerate(statements):
        joined = None
        if out and (id(out[-1]) in facts.removed_after or id(statement) in facts.removed_before):
            name, value = _simple_binding(out[-1])
            if name is not None and value is not None:
                rest = statements[position + 1 :]
                if _dead_after(name, statement, rest, outermost, function):
                    joined = _joined(out[-1], name, value, statement, facts)
        if joined is not None:
            if id(statement) in facts.removed_after:  # the next one may follow on
                facts.removed_after[id(joined)] = joined
            out[-1] = joined
        else:
            out.append(statement)
    return out


def _dead_after(
    name: str, second: Any, rest: list[Any], outermost: bool, function: cst.FunctionDef
) -> bool:
    """Whether no statement after `second` reads this binding of the name."""
    if name in tree.stored_names(second):
        return isinstance(second, cst.SimpleStatementLine)
    if not outermost:
        return sum(1 for n in tree.loaded_names(function.body) if n == name) == 1
    for statement in rest:
        if name in set(tree.loaded_names(statement)):
            return False
        if isinstance(statement, cst.SimpleStatementLine) and name in tree.stored_names(statement):
            return True
    return True


def _joined(first: Any, name: str, value: cst.BaseExpression, second: Any, facts: Facts) -> Any:
    if not isinstance(second, cst.SimpleStatementLine) or len(second.body) != 1:
        return None
    if isinstance(second.body[0], (cst.AugAssign, cst.Del)):
        return None
    if any(line.comment for line in (*first.leading_lines, *second.leading_lines)):
        return None
    trailing = second.trailing_whitespace
    if first.trailing_whitespace.comment is not None:
        # Words on the binding's line may move to a line that adds nothing of its own.
        bare = isinstance(second.body[0], cst.Return) and isinstance(second.body[0].value, cst.Name)
        if not bare or trailing.comment is not None:
            return None
        trailing = first.trailing_whitespace
    if sum(1 for n in tree.loaded_names(second) if n == name) != 1:
        return None
    if not _is_constant(value, facts) and not _evaluated_first(second.body[0], name):
        return None
    plain, safe = (_in_place(second.body[0], name, v) for v in (value, tree.parenthesised(value)))
    return second.with_changes(
        leading_lines=first.leading_lines,
        body=[plain if _parsed(plain) == _parsed(safe) else safe],
        trailing_whitespace=trailing,
    )


def _in_place(small: Any, name: str, value: cst.BaseExpression) -> Any:
    """The statement with a value where it reads a name."""

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, (cst.Attribute, cst.Arg)):  # their other names are labels
            inner = tree.replace(node.value, swap)
            return node.with_changes(value=inner) if inner is not node.value else node
        if isinstance(node, (cst.AssignTarget, cst.Param)):
            return node
        return value if isinstance(node, cst.Name) and node.value == name else None

    return tree.replace(small, swap)


def _parsed(small: cst.BaseSmallStatement) -> str | None:
    """What Python makes of a statement, which tells whether parentheses are needed."""
    try:
        return ast.dump(ast.parse(tree.code(small)))
    except SyntaxError:
        return None


def _is_constant(value: cst.BaseExpression, facts: Facts) -> bool:
    """Whether a value is the same wherever it is evaluated: it reads literals and the config alone.
    Another name or attribute may be changed by a call in between."""
    if id(value) in facts.config_reads:
        return True
    if isinstance(value, (cst.Name, cst.Attribute)):
        return isinstance(value, cst.Name) and value.value in ("None", "True", "False")
    return tree.is_pure(value) and all(
        _is_constant(part, facts)
        for part in tree.parts(value)
        if isinstance(part, cst.BaseExpression)
    )


def _simple_binding(statement: Any) -> tuple[str | None, cst.BaseExpression | None]:
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if (
            isinstance(small, cst.Assign)
            and len(small.targets) == 1
            and isinstance(small.targets[0].target, cst.Name)
        ):
            return small.targets[0].target.value, small.value
    return None, None


def _evaluated_first(small: cst.BaseSmallStatement, name: str) -> bool:
    """Whether nothing but names, attributes and literals is evaluated before the name in this
    statement.
    """
    if isinstance(small, (cst.Return, cst.Expr)):
        expression: Any = small.value
    elif isinstance(small, (cst.Assign, cst.AnnAssign)):
        expression = small.value
    else:
        return False
    for node in in_evaluation_order(expression):
        if isinstance(node, cst.Name) and node.value == name:
            return True
        if not isinstance(
            node, (cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.SimpleString)
        ):
            return False
    return False


def in_evaluation_order(node: Any) -> Any:
    """Operands before the operation that uses them. A branch that may not run ends the walk."""
    if isinstance(node, (cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.SetComp)):
        yield from in_evaluation_order(node.for_in.iter)  # what it runs over comes first, and once
        yield node
        return
    if isinstance(node, (cst.Lambda, cst.IfExp, cst.BooleanOperation)):
        yield node
        return
    if isinstance(node, cst.Attribute):
        yield from in_evaluation_order(node.value)
        yield node
        return
    if isinstance(node, cst.Arg):
        yield from in_evaluation_order(node.value)
        return
    for part in tree.parts(node):
        yield from in_evaluation_order(part)
    if isinstance(node, cst.BaseExpression):
        yield node
