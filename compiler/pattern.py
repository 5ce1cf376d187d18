"""Pattern: a list of children of several classes, built by one call over the classes.

    [kind(config, mesh) for kind in [TransformerLayer] * 3 + [MoETransformerLayer] * 5]

Until names are given, `kind` is a handle, of which `Facts.patterns` knows the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import tree

if TYPE_CHECKING:
    from .facts import Facts


def over_kinds(
    clause: cst.CompFor, specs: str | None, handle: str, table: cst.BaseExpression
) -> cst.CompFor | None:
    """The clause running over classes where it ran over specs, whose variable was `specs`.

    `spec in specs` and `i, spec in enumerate(specs)`; None for any other form.
    """
    target, over = clause.target, clause.iter
    if isinstance(target, cst.Name) and target.value == specs and tree.is_pure(over):
        return clause.with_changes(target=cst.Name(handle), iter=table)
    if (
        isinstance(target, cst.Tuple)
        and len(target.elements) == 2
        and isinstance(target.elements[1].value, cst.Name)
        and target.elements[1].value.value == specs
        and isinstance(over, cst.Call)
        and tree.dotted(over.func) == "enumerate"
        and over.args
        and tree.is_pure(over.args[0].value)
    ):
        number, kind = target.elements
        elements = [number, kind.with_changes(value=cst.Name(handle))]
        args = [over.args[0].with_changes(value=table), *over.args[1:]]
        return clause.with_changes(
            target=target.with_changes(elements=elements), iter=over.with_changes(args=args)
        )
    return None


def without_number(clause: cst.CompFor, loads: set[str], facts: Facts) -> cst.CompFor | None:
    """The clause over the classes alone, where nothing reads what they are zipped with."""
    target, over = clause.target, clause.iter
    if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
        return None
    if len(target.elements) != 2 or tree.dotted(over.func) not in ("enumerate", "zip"):
        return None
    for position, element in enumerate(target.elements):
        kind = element.value
        if isinstance(kind, cst.Name) and kind.value in facts.patterns:
            other = target.elements[1 - position].value
            rest = {n.value for n in tree.walk(other) if isinstance(n, cst.Name)}
            table = over.args[0].value  # of enumerate, and the first of what is zipped
            return None if rest & loads else clause.with_changes(target=kind, iter=table)
    return None


def repeated(items: Sequence[cst.BaseExpression]) -> cst.BaseExpression:
    """`[A] * 3 + [B, C] * 4`: a list shown as the pattern that it is."""
    texts = [tree.code(i) for i in items]
    for period in range(1, len(items) // 2 + 1):
        if len(items) % period == 0 and texts == texts[:period] * (len(items) // period):
            return _times(items[:period], len(items) // period)
    runs: list[tuple[list[cst.BaseExpression], int]] = []
    start = 0
    while start < len(items):
        end = start
        while end < len(items) and texts[end] == texts[start]:
            end += 1
        if runs and end - start == 1 and runs[-1][1] == 1:
            runs[-1] = ([*runs[-1][0], items[start]], 1)
        else:
            runs.append(([items[start]], end - start))
        start = end
    parts = [_times(run, count) for run, count in runs]
    whole = parts[0]
    for part in parts[1:]:
        whole = cst.BinaryOperation(whole, cst.Add(), part)
    return whole


def _times(items: Sequence[cst.BaseExpression], count: int) -> cst.BaseExpression:
    row = cst.List([cst.Element(i) for i in items])
    return row if count == 1 else cst.BinaryOperation(row, cst.Multiply(), cst.Integer(str(count)))


def renewed(node: Any, facts: Facts) -> Any:
    """A clause over classes with its table anew, as classes may have become one; else None."""
    if not isinstance(node, cst.CompFor):
        return None
    names = {n.value for n in tree.walk(node.target) if isinstance(n, cst.Name)}
    if not names & facts.patterns.keys():
        return None
    over = node.iter
    if isinstance(over, cst.Call):
        args = [over.args[0].with_changes(value=_anew(over.args[0].value)), *over.args[1:]]
        return node.with_changes(iter=over.with_changes(args=args))
    return node.with_changes(iter=_anew(over))


def _anew(table: cst.BaseExpression) -> cst.BaseExpression:
    return repeated(_items(table))


def _items(table: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(table, cst.List):
        return [e.value for e in table.elements]
    assert isinstance(table, cst.BinaryOperation)
    if isinstance(table.operator, cst.Multiply):
        return _items(table.left) * int(tree.code(table.right))
    return [*_items(table.left), *_items(table.right)]
