"""What each parameter of a function that goes where it is called stands for there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from .. import tree
from .bound_names import Kind
from .call_graph import CallGraph, Key
from .kinds_of import Kinds
from .program import Program, is_static, own_body
from .purity import is_path, is_pure, is_record_of_pure

SHORT = 72  # columns of an expression that is repeated where it is called


class Arguments:
    def __init__(
        self,
        program: Program,
        kinds: Kinds,
        records: frozenset[str],
        named: frozenset[str],
        graph: CallGraph,
        settled: bool,
    ) -> None:
        self.settled = settled
        self.program, self.kinds, self.records = program, kinds, records
        self.named, self.graph = named, graph
        self.by_call = {id(s.call): s.callees for found in graph.sites.values() for s in found}

    def _bound(
        self,
        call: cst.Call,
        key: Key,
        function: cst.FunctionDef,
        names: Mapping[str, Kind],
        value: cst.BaseExpression | None = None,
    ) -> tuple[dict[str, cst.BaseExpression], list[Any]] | None:
        """What each parameter stands for, and assignments of those that are bound first.

        `value`: the expression that the function is; then nothing may be bound first.
        """
        params = self.graph.parameters(key)
        given = self._arguments(call, key, function, params)
        if given is None:
            return None
        body = cst.IndentedBlock(own_body(function))
        stored = tree.stored_names(body)
        loads = tree.loaded_names(body)
        mapping: dict[str, cst.BaseExpression] = {}
        before: list[Any] = []
        for name, argument in given.items():
            often = loads.count(name)
            movable = is_pure(argument) or is_record_of_pure(argument, self.records)
            steady = value is not None or not set(tree.loaded_names(cst.Expr(argument))) & stored
            if (
                steady
                and name not in stored
                and (
                    is_path(argument)
                    or is_record_of_pure(argument, self.records)
                    or (movable and often <= 1)
                    or (value is not None and movable and len(tree.code(argument)) <= SHORT)
                    or (value is not None and often == 1 and self._first(value, name, given))
                    or isinstance(argument, cst.Lambda)
                )
            ):
                mapping[name] = argument
            elif value is not None:
                return None
            elif not (isinstance(argument, cst.Name) and argument.value == name):
                before.append(
                    cst.SimpleStatementLine(
                        [cst.Assign([cst.AssignTarget(cst.Name(name))], argument)]
                    )
                )
        if before and len(before) > 1:
            # They are bound one after the other: none may read what one before it binds.
            bound: set[str] = set()
            for line in before:
                if set(tree.loaded_names(line)) & bound:
                    return None
                bound |= tree.stored_names(line)
        return mapping, before

    def _first(
        self, value: cst.BaseExpression, name: str, given: Mapping[str, cst.BaseExpression]
    ) -> bool:
        """Whether an argument that acts may move into the expression: no other argument acts."""
        others = [v for n, v in given.items() if n != name]
        return all(is_pure(v) for v in others) and not isinstance(value, cst.IfExp)

    def _arguments(
        self, call: cst.Call, key: Key, function: cst.FunctionDef, params: list[cst.Param]
    ) -> dict[str, cst.BaseExpression] | None:
        star = function.params.star_arg
        positional = [
            p.name.value for p in (*function.params.posonly_params, *function.params.params)
        ]
        if key[0] is not None and not is_static(function):
            positional = positional[1:]
        names = [p.name.value for p in params]
        args = list(call.args)
        given: dict[str, cst.BaseExpression] = {}
        if isinstance(star, cst.Param):
            rest = [a for a in args[len(positional) :] if a.keyword is None]
            if any(a.star for a in args):
                return None
            given[star.name.value] = cst.Tuple(
                [cst.Element(a.value) for a in rest], [cst.LeftParen()], [cst.RightParen()]
            )
            args = [a for a in args if a not in rest]
        elif function.params.star_kwarg is not None:
            return None
        found = tree.arguments_by_name(call.with_changes(args=args), names)
        if found is None:
            return None
        given = {**found, **given}
        for param in params:
            if param.name.value not in given:
                if param.default is None or not is_pure(param.default):
                    return None
                given[param.name.value] = param.default
        if key[0] is not None and not is_static(function):
            if not isinstance(call.func, cst.Attribute) or not is_path(call.func.value):
                return None
            given["self"] = call.func.value
        return given
