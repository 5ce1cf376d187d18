"""Narrow: an annotation of the runtime's says no more than what every call passes."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .call_graph import Key, all_keys, call_graph
from .kinds_of import NONE, Kinds
from .program import Program
from .signatures import given_to


def narrow(program: Program, kinds: Kinds) -> None:
    """Annotations of the runtime's parameters, where every call passes something narrower."""
    graph = call_graph(program, kinds)
    found: dict[Key, dict[str, cst.Annotation]] = {}
    for key in all_keys(program):
        sites = graph.seen(key)
        name = key[0] or key[1]
        if sites is None or name not in program.ours:
            continue
        if not program.may_alter(name):
            continue
        for param in graph.parameters(key):
            if param.annotation is None or not graph.is_known(key, param.name.value):
                continue
            said = kinds.annotation(param.annotation)
            values = [given_to(s, param.name.value, graph, key) for s in sites]
            passed: frozenset[str] = frozenset()
            for site, value in zip(sites, values, strict=True):
                given = param.name.value in (graph.given(site, key) or {})
                names = site.names if given else {}
                passed |= kinds.of(value, names) if value is not None else frozenset({"?"})
            new = _narrower(param.annotation.annotation, said, passed, program)
            if new is not None:
                annotation = param.annotation.with_changes(annotation=new)
                found.setdefault(key, {})[param.name.value] = annotation
                program.altered.add(name)

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        new = found.get((owner, function.name.value))
        if new is None:
            return function

        def changed(params: Any, ordered: bool) -> list[cst.Param]:
            out: list[cst.Param] = []
            for param in params:
                bare = not ordered or all(p.default is None for p in out)
                out.append(_narrowed(param, new.get(param.name.value), bare))
            return out

        params = function.params
        return function.with_changes(
            params=params.with_changes(
                params=changed(params.params, True),
                kwonly_params=changed(params.kwonly_params, False),
            )
        )

    if found:
        program.change_functions(change)
        for (owner, _), annotations in found.items():
            if owner is not None and program.is_record(owner):
                _narrow_fields(program, owner, annotations)


def _narrow_fields(program: Program, owner: str, new: dict[str, cst.Annotation]) -> None:
    """A field says no more than what every construction gives; `= None` stays where it must."""
    body: list[Any] = []
    defaulted = False
    for item in tree.body_of(program.statements[owner]):
        small = item.body[0] if isinstance(item, cst.SimpleStatementLine) else None
        if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
            is_none = isinstance(small.value, cst.Name) and small.value.value == "None"
            if small.target.value in new and not (is_none and defaulted):
                small = small.with_changes(
                    annotation=new[small.target.value],
                    value=None if is_none else small.value,
                    equal=cst.MaybeSentinel.DEFAULT,
                )
                item = item.with_changes(body=[small])
            defaulted |= small.value is not None
        body.append(item)
    program.statements[owner] = tree.with_body(program.statements[owner], body)


def _narrowed(param: cst.Param, annotation: cst.Annotation | None, bare: bool) -> cst.Param:
    """The parameter so annotated; without its `= None` where none before it has a default."""
    if annotation is None:
        return param
    if bare and isinstance(param.default, cst.Name) and param.default.value == "None":
        param = param.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
        return param.with_changes(annotation=annotation)
    if isinstance(param.default, cst.Name) and param.default.value == "None":
        return param
    return param.with_changes(annotation=annotation)


def _narrower(
    node: cst.BaseExpression, said: frozenset[str], passed: frozenset[str], program: Program
) -> cst.BaseExpression | None:
    """An annotation for what is passed, where it says less than the old one; None for no other."""
    if "?" in passed or not passed:
        return None
    if passed < said and all(program.class_of(k) is not None for k in passed):
        union: cst.BaseExpression | None = None
        for name in sorted(passed):
            one = cst.Name(name)
            union = one if union is None else cst.BinaryOperation(union, cst.BitOr(), one)
        return union
    if said >= NONE and not passed & NONE:
        return _without_none(node)
    return None


def _without_none(node: cst.BaseExpression) -> cst.BaseExpression | None:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.BitOr):
        return None
    if isinstance(node.right, cst.Name) and node.right.value == "None":
        return node.left
    return None
