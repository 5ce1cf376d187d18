"""Locals: a name bound once to what is as short as a name, or to a record, is what it stands for.

In the runtime's functions, and in the page's where folding wrote the binding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import libcst as cst

from .. import tree
from .adjacent import adjacent_joined
from .literals_on import literals_on
from .local_names import bindings, compared_only, is_choice, stored_through, stores_of
from .program import Program
from .purity import is_harmless, is_literal, is_path, is_pure, is_record_of_pure
from .records_apart import records_apart
from .substitute import substituted
from .tuples_apart import tuples_apart

LONG_TEST = 60  # columns of a test that is read where it is asked


def tidy_locals(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    """The function with such names replaced, and without bindings that nothing reads."""
    tidy = program.memory.setdefault("tidy", {})
    if tidy.get(id(function), (None, None)) == (function, records):
        return function
    new = _tidied(function, program, records, ours)
    if new is function:
        tidy[id(function)] = (function, records)
    return new


def _tidied(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    function = literals_on(function)
    function = tuples_apart(function, program, ours)
    function = records_apart(function, program, records)
    mapping, gone = _aliases(function, program, records, ours)
    if mapping:
        body = [substituted(s, mapping) for s in _without(tree.body_of(function), gone)]
        function = tree.with_body(function, body)
    function = _drop_unread(function, program, records, ours)
    return adjacent_joined(function, program, ours)


def _aliases(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> tuple[dict[str, cst.BaseExpression], set[int]]:
    stores = stores_of(function)
    loads = Counter(tree.loaded_names(function.body))
    mapping: dict[str, cst.BaseExpression] = {}
    gone: set[int] = set()
    for line, name, value in bindings(tree.body_of(function)):
        read = set(tree.loaded_names(cst.Expr(value)))
        if stores[name] != 1 or read & mapping.keys():
            continue
        if not all(stores[n] <= 1 for n in read) or (not ours and name in program.read_before):
            continue
        if line.trailing_whitespace.comment is not None and not is_literal(value):
            continue
        if (
            is_literal(value)
            or isinstance(value, cst.Name)
            or (loads[name] <= 1 and (is_path(value) or (ours and _is_test(value))))
            or is_record_of_pure(value, records)
            or (is_choice(value) and compared_only(name, function))
        ) and not stored_through(name, function):
            mapping[name] = value
            gone.add(id(line))
    return mapping, gone


def _is_test(value: cst.BaseExpression) -> bool:
    """`a is None`, `not b`: as well read where it is asked."""
    tests = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation)
    return isinstance(value, tests) and is_pure(value) and len(tree.code(value)) <= LONG_TEST


def _without(statements: Iterable[Any], gone: set[int]) -> list[Any]:
    """Statements without these lines; their comments go above what follows."""
    out: list[Any] = []
    words: list[cst.EmptyLine] = []
    for statement in statements:
        if id(statement) in gone:
            words += [x for x in statement.leading_lines if x.comment is not None]
            continue

        def inside(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                body = _without(child.body, gone)
                return (
                    child
                    if len(body) == len(child.body)
                    and all(a is b for a, b in zip(body, child.body, strict=True))
                    else child.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])
                )
            return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

        if not isinstance(statement, cst.SimpleStatementLine):
            statement = tree.rebuild(statement, inside)
        if words and hasattr(statement, "leading_lines"):
            statement = statement.with_changes(leading_lines=[*words, *statement.leading_lines])
            words = []
        out.append(statement)
    return out


def _drop_unread(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    loads = set(tree.loaded_names(function.body))
    gone = {
        id(line)
        for line, name, value in bindings(tree.body_of(function))
        if name not in loads
        and (ours or name in program.read_before or name not in program.bound_before)
        and is_harmless(value, records)
    }
    if not gone:
        return function
    return tree.with_body(function, _without(tree.body_of(function), gone))
