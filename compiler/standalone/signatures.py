"""Signatures: a parameter that is the same constant everywhere, or that nothing reads, goes.

It goes with the arguments of every call; where not every call is seen, it stays.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .call_graph import CallGraph, Key, Site, all_keys, call_graph
from .kinds_of import Kinds
from .program import Program
from .purity import is_harmless, is_literal
from .substitute import substituted


def bind_constants(program: Program, kinds: Kinds, records: frozenset[str]) -> None:
    """Parameters of the runtime's functions for which every call has one literal."""
    graph = call_graph(program, kinds)
    bound: dict[Key, dict[str, cst.BaseExpression]] = {}
    for key in all_keys(program):
        name = key[0] or key[1]
        if name not in program.ours or not program.may_alter(name):
            continue
        if graph.function(key) is None:  # a record, whose fields are read elsewhere
            continue
        sites = graph.seen(key)
        if sites is None or not _alone(key, sites):
            continue
        for param in graph.parameters(key):
            if not graph.is_known(key, param.name.value):
                continue
            values = [given_to(s, param.name.value, graph, key) for s in sites]
            if all(is_literal(v) for v in values):
                texts = {tree.code(v) for v in values if v is not None}
                if len(texts) == 1 and values[0] is not None:
                    bound.setdefault(key, {})[param.name.value] = values[0]
    _take_out(program, graph, {k: set(v) for k, v in bound.items()}, bound)


def _alone(key: Key, sites: list[Site]) -> bool:
    """Whether every call reaches this function and no other."""
    return all(s.callees == (key,) for s in sites)


def drop_unread(program: Program, kinds: Kinds, records: frozenset[str]) -> None:
    """Parameters that nothing reads, and that something read before folding."""
    graph = call_graph(program, kinds)
    unread: dict[Key, set[str]] = {}
    for key in all_keys(program):
        owner, name = key
        function = graph.function(key)
        sites = graph.seen(key)
        if sites is None:
            continue
        ours = (owner or name) in program.ours
        ready = program.closed if owner is not None and name == "__init__" else True
        if not program.may_alter(owner or name) or not ready:
            continue
        for param in graph.parameters(key):
            parameter = param.name.value
            if not graph.is_known(key, parameter):
                continue
            if function is None:
                assert owner is not None
                used = _reads_field(program, owner, parameter)
            else:
                used = _reads(function, parameter)
            if not used and (ours or parameter in program.read_before):
                unread.setdefault(key, set()).add(parameter)
    _keep_what_calls_need(graph, unread, records)
    _take_out(program, graph, unread, {})


def _keep_what_calls_need(
    graph: CallGraph, unread: dict[Key, set[str]], records: frozenset[str]
) -> None:
    """Take back a parameter whose argument acts, or that another function of its call reads."""
    settled = False
    while not settled:
        settled = True
        for key, names in unread.items():
            for site in graph.sites.get(key, []):
                given = _arguments(site, graph, key)
                for name in sorted(names):
                    needed = name in given and not is_harmless(given[name], records)
                    needed |= any(
                        name not in unread.get(other, set())
                        and name in [p.name.value for p in graph.parameters(other)]
                        for other in site.callees
                    )
                    if needed:
                        names.discard(name)
                        settled = False


def _arguments(site: Site, graph: CallGraph, key: Key) -> dict[str, cst.BaseExpression]:
    return graph.given(site, key) or {}


def given_to(site: Site, name: str, graph: CallGraph, key: Key) -> cst.BaseExpression | None:
    """What a call passes for a parameter, or its default."""
    given = _arguments(site, graph, key)
    if name in given:
        return given[name]
    return next(p.default for p in graph.parameters(key) if p.name.value == name)


def _take_out(
    program: Program,
    graph: CallGraph,
    drop: dict[Key, set[str]],
    values: dict[Key, dict[str, cst.BaseExpression]],
) -> None:
    """Take parameters and their arguments out, in place."""
    drop = {k: n for k, n in drop.items() if n}
    if not drop:
        return
    program.altered |= {owner or name for owner, name in drop}
    calls: dict[int, tuple[cst.Call, Key]] = {}
    for key in drop:
        for site in graph.sites.get(key, []):
            calls[id(site.call)] = (site.call, key)

    def shrink(node: Any) -> Any:
        new = tree.rebuild(node, shrink)
        if id(node) in calls:
            key = calls[id(node)][1]
            names = [p.name.value for p in graph.parameters(key)]
            return _without(new, names, drop[key])
        return new

    for name, statement in list(program.statements.items()):
        program.statements[name] = shrink(statement)

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        key = (owner, function.name.value)
        return without_parameters(function, drop.get(key, set()), values.get(key, {}))

    program.change_functions(change)
    for (owner, name), names in drop.items():
        if owner is not None and name == "__init__" and program.is_record(owner):
            _drop_fields(program, owner, names)


def _without(call: cst.Call, names: list[str], drop: set[str]) -> cst.Call:
    """A call without these arguments: those behind one by position move up, as parameters do."""
    kept = [
        arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        for position, arg in enumerate(call.args)
        if (arg.keyword.value if arg.keyword is not None else names[position]) not in drop
    ]
    return call.with_changes(args=kept)


def without_parameters(
    function: cst.FunctionDef, names: set[str], values: dict[str, cst.BaseExpression]
) -> cst.FunctionDef:
    if not names:
        return function

    def kept(params: Any) -> list[cst.Param]:
        return [
            p.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            for p in params
            if p.name.value not in names
        ]

    params = function.params
    kwonly = kept(params.kwonly_params)
    star: Any = params.star_arg
    if isinstance(star, cst.ParamStar) and not kwonly:
        star = cst.MaybeSentinel.DEFAULT
    new = params.with_changes(
        params=kept(params.params),
        posonly_params=kept(params.posonly_params),
        kwonly_params=kwonly,
        star_arg=star,
    )
    body = list(tree.body_of(function))
    stored = tree.stored_names(cst.IndentedBlock(body))
    mapping = {n: v for n, v in values.items() if n not in stored}
    body = [substituted(s, mapping) for s in body]
    first = 1 if tree.docstring_of(body) is not None else 0
    body[first:first] = [
        cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(n))], v)])
        for n, v in values.items()
        if n in stored
    ]
    return tree.with_body(function.with_changes(params=new), body)


def _drop_fields(program: Program, owner: str, names: set[str]) -> None:
    node = program.class_of(owner)
    assert node is not None
    body = []
    for item in tree.body_of(node):
        if isinstance(item, cst.SimpleStatementLine) and isinstance(item.body[0], cst.AnnAssign):
            target = item.body[0].target
            if isinstance(target, cst.Name) and target.value in names:
                continue
        body.append(item)
    program.statements[owner] = tree.with_body(node, body)


def _reads(function: cst.FunctionDef, name: str) -> bool:
    return name in tree.loaded_names(function.body)


def _reads_field(program: Program, owner: str, name: str) -> bool:
    """Whether anything may read a field of a record: whatever reads an attribute of its name."""
    for statement in program.statements.values():
        stored = {id(a) for a in tree.stored_attributes(statement)}
        for item in tree.walk(statement):
            if (
                isinstance(item, cst.Attribute)
                and item.attr.value == name
                and id(item) not in stored
            ):
                return True
    return owner not in program.ours
