"""Pattern: a list of children of several classes, built by one call over the classes.

    [kind(config, mesh) for kind in [TransformerLayer] * 3 + [MoETransformerLayer] * 5]

or, where the config names each child by a symbol, over the symbols and a table of the classes:

    kinds = {"M": MambaLayer, "*": AttentionLayer}
    [kinds[symbol](config, mesh) for symbol in config.hybrid_layer_pattern]

Until names are given, `kind` and `kinds` are handles, of which `Facts.patterns` knows the classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def handle_of(call: cst.Call, facts: Facts) -> str | None:
    """The handle by which a call builds children of several classes; None for any other call."""
    func = call.func.value if isinstance(call.func, cst.Subscript) else call.func
    return func.value if isinstance(func, cst.Name) and func.value in facts.patterns else None


def looked_up(spec: cst.BaseExpression | None) -> tuple[str, str] | None:
    """The table and the key in `table[key]`, where both are plain names."""
    if not isinstance(spec, cst.Subscript) or not isinstance(spec.value, cst.Name):
        return None
    index = spec.slice[0].slice if len(spec.slice) == 1 else None
    if not isinstance(index, cst.Index) or not isinstance(index.value, cst.Name):
        return None
    return spec.value.value, index.value.value


def source_of(clause: cst.CompFor, name: str) -> cst.Attribute | None:
    """What the variable of this name runs over: `a.b`, by itself or in `enumerate(a.b)`."""
    target: cst.BaseExpression = clause.target
    over = clause.iter
    if isinstance(target, cst.Tuple) and isinstance(over, cst.Call):
        if len(target.elements) != 2 or tree.dotted(over.func) != "enumerate" or not over.args:
            return None
        target, over = target.elements[1].value, over.args[0].value
    named = isinstance(target, cst.Name) and target.value == name
    return over if named and isinstance(over, cst.Attribute) else None


def by_table(
    handle: str, key: str, classes: Mapping[str, cst.BaseExpression]
) -> tuple[cst.Dict, cst.Subscript]:
    """The table of the classes, and the class that a key has in it."""
    entries = [
        cst.DictElement(cst.SimpleString(f'"{symbol}"'), value) for symbol, value in classes.items()
    ]
    index = cst.SubscriptElement(cst.Index(cst.Name(key)))
    return cst.Dict(entries), cst.Subscript(cst.Name(handle), [index])


def without_number(node: cst.ListComp, loads: set[str], facts: Facts) -> cst.CompFor | None:
    """The clause over the classes, or their symbols, alone, where nothing reads the numbers or
    whatever they are zipped with."""
    clause = node.for_in
    target, over = clause.target, clause.iter
    if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
        return None
    if len(target.elements) != 2 or tree.dotted(over.func) not in ("enumerate", "zip"):
        return None
    for position, element in enumerate(target.elements):
        kind = element.value
        symbol = isinstance(node.elt, cst.Call) and looked_up(node.elt.func)
        if symbol and symbol[0] in facts.patterns and position == 1:
            number = target.elements[0].value
            plain = isinstance(number, cst.Name) and number.value not in loads
            return clause.with_changes(target=kind, iter=over.args[0].value) if plain else None
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
