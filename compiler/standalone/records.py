"""Records: fields that are one literal, two fields that are one, and records of one field.

A dataclass of the runtime that says where many processes stand comes down to what it says in one:
`Positions` to a tensor of places.
"""

from __future__ import annotations

import functools
from typing import Any

import libcst as cst

from .. import tree
from .call_graph import CallGraph, call_graph
from .kinds_of import Kinds, class_names
from .local_names import renamed_local
from .program import Program
from .purity import is_literal, is_pure
from .substitute import substituted


def record_names(program: Program) -> frozenset[str]:
    """The records of the runtime whose construction does nothing but hold what is given."""
    return frozenset(
        n
        for n in program.ours
        if program.is_record(n) and program.method(n, "__post_init__") is None
    )


def constant_attributes(
    program: Program, kinds: Kinds, records: frozenset[str]
) -> dict[tuple[str, str], cst.BaseExpression]:
    """Attributes and fields of the runtime's classes that are one literal in every instance."""
    found: dict[tuple[str, str], cst.BaseExpression] = {}
    graph = call_graph(program, kinds)
    elsewhere = frozenset().union(*map(_stored_elsewhere, program.statements.values()))
    for owner in sorted(program.ours):
        if program.class_of(owner) is None or not program.may_alter(owner):
            continue
        if program.is_record(owner):
            for name, values in _field_values(program, graph, owner).items():
                one = _one_literal(values)
                if one is not None:
                    found[owner, name] = one
                    program.altered.add(owner)
            continue
        names = {n for o, n in kinds._stores if o == owner}
        for name in sorted(names):
            stored = kinds.stores(owner, name)
            if all(f.name.value == "__init__" for f, _ in stored):
                one = _one_literal([v for _, v in stored])
                if one is not None and name not in elsewhere:
                    found[owner, name] = one
    return found


def _one_literal(values: list[Any]) -> cst.BaseExpression | None:
    if not values or any(isinstance(v, frozenset) or not is_literal(v) for v in values):
        return None
    return values[0] if len({tree.code(v) for v in values}) == 1 else None


@functools.lru_cache(maxsize=1 << 12)
def _stored_elsewhere(statement: Any) -> frozenset[str]:
    """The names of attributes that code stores in something that is not `self`."""
    stored = tree.stored_attributes(statement)
    return frozenset(a.attr.value for a in stored if tree.self_attribute(a) is None)


def _field_values(
    program: Program, graph: CallGraph, owner: str
) -> dict[str, list[cst.BaseExpression | None]]:
    """What each construction gives for each field; nothing where not all are seen."""
    sites = graph.seen((owner, "__init__"))
    fields = program.fields(owner)
    if sites is None:
        return {}
    values: dict[str, list[cst.BaseExpression | None]] = {n: [] for n in fields}
    for site in sites:
        given = tree.arguments_by_name(site.call, list(fields))
        if given is None:
            return {}
        for name, field in fields.items():
            values[name].append(given.get(name, field.value))
    return values


def join_fields(program: Program, kinds: Kinds, records: frozenset[str]) -> bool:
    """Read the first of two fields that every construction gives alike, in place."""
    graph = call_graph(program, kinds)
    for owner in sorted(records):
        values = _field_values(program, graph, owner)
        first: dict[tuple[str, ...], str] = {}
        swaps: dict[str, str] = {}
        for name, given in values.items():
            if not given or any(v is None or is_literal(v) or not is_pure(v) for v in given):
                continue
            key = tuple(tree.code(v) for v in given if v is not None)
            if first.setdefault(key, name) != name:
                swaps[name] = first[key]
        if swaps and _read_alike(program, kinds, owner, swaps):
            return True
    return False


def _read_alike(program: Program, kinds: Kinds, owner: str, swaps: dict[str, str]) -> bool:
    changed = False

    def change(cls: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        names = kinds.environment(cls, function)

        def visit(node: Any) -> Any:
            nonlocal changed
            swapped = isinstance(node, cst.Attribute) and node.attr.value in swaps
            if swapped and class_names(kinds.of(node.value, names), program) == [owner]:
                changed = True
                node = node.with_changes(attr=cst.Name(swaps[node.attr.value]))
            return tree.rebuild(node, visit)

        return visit(function)  # type: ignore[no-any-return]

    program.change_functions(change)
    return changed


def unwrap(program: Program, kinds: Kinds, records: frozenset[str]) -> bool:
    """A record of one field and no method is that field, in place; says whether there was one."""
    for owner in sorted(records):
        fields = program.fields(owner)
        methods = [
            i for i in tree.body_of(program.statements[owner]) if isinstance(i, cst.FunctionDef)
        ]
        if len(fields) != 1 or methods:
            continue
        graph = call_graph(program, kinds)
        if graph.seen((owner, "__init__")) is None or _is_tested(program, owner):
            continue
        ((name, field),) = fields.items()
        _unwrap(program, kinds, graph, owner, name, field)
        return True
    return False


def _is_tested(program: Program, owner: str) -> bool:
    return any(
        isinstance(i, cst.Call)
        and tree.dotted(i.func) == "isinstance"
        and owner in tree.loaded_names(i)
        for s in program.statements.values()
        for i in tree.walk(s)
    )


def _unwrap(
    program: Program, kinds: Kinds, graph: CallGraph, owner: str, name: str, field: cst.AnnAssign
) -> None:
    def change(cls: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        names = kinds.environment(cls, function)

        def visit(node: Any) -> Any:
            if isinstance(node, cst.Call) and tree.dotted(node.func) == owner:
                given = tree.arguments_by_name(node, [name]) or {}
                value = given.get(name, field.value)
                assert value is not None
                return tree.parenthesised(visit(value))
            read = isinstance(node, cst.Attribute) and node.attr.value == name
            if read and class_names(kinds.of(node.value, names), program) == [owner]:
                return visit(node.value)
            return tree.rebuild(node, visit)

        new = visit(function)
        return renamed_local(new, owner.lower(), name) if rename else new

    by_keyword = {
        a.keyword.value
        for s in program.statements.values()
        for i in tree.walk(s)
        if isinstance(i, cst.Call)
        for a in i.args
        if a.keyword is not None
    }
    # A local that was called by the record's name, and by no name of the page's.
    rename = owner.lower() not in program.read_before | by_keyword
    program.change_functions(change)
    annotation = field.annotation.annotation
    for key, statement in list(program.statements.items()):
        program.statements[key] = _annotated(statement, owner, annotation)
    del program.statements[owner]
    program.ours.discard(owner)


def _annotated(statement: Any, owner: str, annotation: cst.BaseExpression) -> Any:
    def visit(node: Any) -> Any:
        if isinstance(node, cst.Annotation):
            return substituted(node, {owner: annotation})
        return tree.rebuild(node, visit)

    return visit(statement)
