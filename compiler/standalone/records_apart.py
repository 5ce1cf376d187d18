"""Records apart: a record of which a function reads fields alone is a name for each field."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .local_names import assignment, bindings, stored_through, stores_of
from .program import Program
from .purity import is_harmless, is_literal, is_path


def records_apart(
    function: cst.FunctionDef, program: Program, records: frozenset[str]
) -> cst.FunctionDef:
    """`r = Record(a, f(b))`, of which only fields are read, becomes a name for each field."""
    stores = stores_of(function)
    taken = set(stores) | set(tree.loaded_names(function.body))
    for line, name, value in bindings(tree.body_of(function)):
        if stores[name] != 1 or not isinstance(value, cst.Call):
            continue
        owner = tree.dotted(value.func)
        if owner not in records or _used_whole(name, function):
            continue
        fields = program.fields(owner)
        given = tree.arguments_by_name(value, list(fields))
        if given is None:
            continue
        reads = _fields_read(name, function)
        values: dict[str, cst.BaseExpression] = {}
        lines: list[Any] = []
        clash = False
        for field_name in fields:
            part = given.get(field_name, fields[field_name].value)
            if part is None:
                clash = True
                break
            names = set(tree.loaded_names(cst.Expr(part)))
            if field_name not in reads and is_harmless(part, records):
                continue
            stable = all(stores[n] <= 1 for n in names)
            if is_literal(part) or (is_path(part) and stable):
                values[field_name] = part
            elif isinstance(part, cst.Name) and part.value == field_name:
                clash = True
                break
            else:
                clash |= field_name in taken
                lines.append(assignment(field_name, part))
                values[field_name] = cst.Name(field_name)
        if clash:
            continue
        return _fields_named(function, line, name, values, lines)
    return function


def _used_whole(name: str, function: cst.FunctionDef) -> bool:
    """Whether a name is read other than for a field."""
    inside = {
        id(item.value)
        for item in tree.walk(function.body)
        if isinstance(item, cst.Attribute) and isinstance(item.value, cst.Name)
    }
    return any(
        isinstance(item, cst.Name) and item.value == name and id(item) not in inside
        for item in tree.walk_loads(function.body)
    ) or stored_through(name, function)


def _fields_read(name: str, function: cst.FunctionDef) -> set[str]:
    return {
        item.attr.value
        for item in tree.walk(function.body)
        if isinstance(item, cst.Attribute)
        and isinstance(item.value, cst.Name)
        and item.value.value == name
    }


def _fields_named(
    function: cst.FunctionDef,
    line: Any,
    name: str,
    values: dict[str, cst.BaseExpression],
    lines: list[Any],
) -> cst.FunctionDef:
    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if (
            isinstance(node, cst.Attribute)
            and isinstance(node.value, cst.Name)
            and node.value.value == name
        ):
            return tree.parenthesised(values[node.attr.value])
        return None

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            body: list[Any] = []
            statement: Any
            for statement in node.body:
                if statement is line:
                    body += tree.with_leading(lines, list(line.leading_lines))
                else:
                    body.append(change(statement))
            return node.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])
        if isinstance(node, cst.BaseExpression):
            return tree.replace(node, swap)
        return tree.rebuild(node, change)

    result: cst.FunctionDef = change(function)
    return result
