"""Inline: the runtime's small and once-called functions, written where they are called.

A function that is one expression goes into the expression that calls it; one that is called once,
as a statement, leaves its statements there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from .. import tree
from .bound_names import Kind
from .call_graph import Key, call_graph
from .inline_arguments import SHORT, Arguments
from .kinds_of import NONE, Kinds
from .program import Program, is_property, is_static, own_body
from .purity import is_path, is_pure, is_record_of_pure
from .substitute import substituted

FEW = 3  # statements of a function of the page's that goes where it is called


def inline_calls(
    program: Program,
    kinds: Kinds,
    records: frozenset[str],
    named: frozenset[str],
    settled: bool,
) -> None:
    """`named`: functions that the page calls by name, which a reader knows: they stay until the
    rest is `settled`, when it shows how long they are. In place.
    """
    graph = call_graph(program, kinds)
    inliner = _Inliner(program, kinds, records, named, graph, settled)
    program.change_functions(inliner.change)


def as_expression(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """The expression that a function is: `return e`, or `if t: return a` and `return b`."""
    body = own_body(function)
    if not body or len(body) > 3:
        return None
    result = _returned(body[-1])
    for statement in reversed(body[:-1]):
        if not isinstance(statement, cst.If) or result is None or statement.orelse is not None:
            return None
        inner = tree.body_of(statement)
        taken = _returned(inner[0]) if len(inner) == 1 else None
        if taken is None:
            return None
        result = cst.IfExp(statement.test, taken, result, [cst.LeftParen()], [cst.RightParen()])
    return result


def _returned(statement: Any) -> cst.BaseExpression | None:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    return small.value if isinstance(small, cst.Return) else None


class _Inliner(Arguments):
    def change(self, owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        names = self.kinds.environment(owner, function)
        self.caller = (owner, function.name.value)
        self.function = function
        self.spread = False
        body = self._block(tree.body_of(function), names, last=True)
        old = tree.body_of(function)
        if len(body) == len(old) and all(a is b for a, b in zip(body, old, strict=True)):
            return function
        return tree.with_body(function, body)

    # ---------------------------------------------------------------- statements

    def _block(self, statements: Any, names: Mapping[str, Kind], last: bool = False) -> list[Any]:
        out: list[Any] = []
        for statement in statements:
            out += self._statement(statement, names)
        return out

    def _statement(self, statement: Any, names: Mapping[str, Kind]) -> list[Any]:
        one = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        if one and not self.spread:  # one at a time: the next must know the names of this one
            spread = self._spread(statement, names)
            if spread is not None:
                self.spread = True
                return spread
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return [statement]

        def inside(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                body = self._block(child.body, names)
                same = len(body) == len(child.body) and all(
                    a is b for a, b in zip(body, child.body, strict=True)
                )
                return child if same else child.with_changes(body=body)
            if isinstance(child, cst.BaseExpression):
                return self._expression(child, names)
            return tree.rebuild(child, inside)

        return [tree.rebuild(statement, inside)]

    def _spread(self, line: Any, names: Mapping[str, Kind]) -> list[Any] | None:
        """The statements of a function in place of the one that calls it."""
        small = line.body[0]
        if isinstance(small, (cst.Return, cst.Expr)):
            call, targets = small.value, set()
        elif isinstance(small, cst.Assign) and len(small.targets) == 1:
            call = small.value
            targets = tree.stored_names(small)
            if not targets:
                return None
        else:
            return None
        if not isinstance(call, cst.Call):
            return None
        key = self._callee(call, names)
        function = self._may_inline(key) if key is not None else None
        if key is None or function is None:
            return None
        value = as_expression(function)
        if value is not None:
            alone = len(self.graph.sites.get(key, [])) == 1
            if not alone or self._bound(call, key, function, names, value) is not None:
                return None
        body = own_body(function)
        if not body:
            return None
        is_return = isinstance(small, cst.Return)
        if not self._spreads(key, body, is_return, small):
            return None
        bound = self._bound(call, key, function, names)
        if bound is None:
            return None
        mapping, before = bound
        own = tree.stored_names(cst.IndentedBlock([*body, *before]))
        if own & _free(mapping):
            return None
        if not is_return and (own - targets) & self._names_of_caller(call):
            return None
        new = [*before, *(substituted(s, mapping) for s in body)]
        final = new[-1]
        returned = _returned(final)
        if isinstance(small, cst.Assign):
            if returned is None:
                return None
            new[-1] = final.with_changes(
                body=[small.with_changes(value=returned)],
                trailing_whitespace=(
                    line.trailing_whitespace
                    if line.trailing_whitespace.comment is not None
                    else final.trailing_whitespace
                ),
            )
        return tree.with_leading(new, list(line.leading_lines))

    def _spreads(self, key: Key, body: list[Any], is_return: bool, small: Any) -> bool:
        """Whether a function's statements may stand where it is called."""
        if len(self.graph.sites.get(key, [])) != 1:
            return isinstance(small, cst.Expr) and not _returns(body) and len(body) <= FEW
        if key[1] in self.named and (not self.settled or len(body) > FEW):
            return False
        if is_return:
            return _always_returns(body)
        if isinstance(small, cst.Expr):
            return not _returns(body)
        return not _returns(body[:-1]) and _returned(body[-1]) is not None

    def _names_of_caller(self, call: cst.Call) -> set[str]:
        names = set(tree.loaded_names(self.function.body)) | tree.stored_names(self.function.body)
        names |= {p.name.value for p in tree.every_parameter(self.function)}
        return names

    # ---------------------------------------------------------------- expressions

    def _expression(self, node: Any, names: Mapping[str, Kind]) -> Any:
        if isinstance(
            node, (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Lambda)
        ):
            return node  # with names of its own, and run as often as it likes
        if isinstance(node, cst.Call):
            key = self._callee(node, names)
            function = self._may_inline(key) if key is not None else None
            if key is not None and function is not None:
                value = as_expression(function)
                if value is not None and self._is_worth(key, function, value):
                    new = self._placed(node, key, function, value, names)
                    if new is not None:
                        return new
        if isinstance(node, cst.Attribute):
            new = self._property(node, names)
            if new is not None:
                return new
            value = self._expression(node.value, names)
            return node if value is node.value else node.with_changes(value=value)
        return tree.rebuild(node, lambda child: self._expression(child, names))

    def _is_worth(self, key: Key, function: cst.FunctionDef, value: cst.BaseExpression) -> bool:
        if key[0] is None and key[1] in self.named and not self.settled:
            return False
        if len(self.graph.sites.get(key, [])) == 1:
            return True
        if is_record_of_pure(value, self.records) or is_path(value):
            return True
        hidden = key[1] not in self.named or key[0] is not None
        return hidden and len(tree.code(value)) <= SHORT

    def _placed(
        self,
        call: cst.Call,
        key: Key,
        function: cst.FunctionDef,
        value: cst.BaseExpression,
        names: Mapping[str, Kind],
    ) -> cst.BaseExpression | None:
        bound = self._bound(call, key, function, names, value)
        if bound is None or bound[1]:
            return None
        return tree.parenthesised(substituted(value, bound[0]))

    def _property(self, node: cst.Attribute, names: Mapping[str, Kind]) -> Any:
        """`thing.ids`, where `ids` is a property of one of the runtime's classes."""
        kind = self.kinds.of(node.value, names) - NONE
        if len(kind) != 1 or not is_pure(node.value):
            return None
        (owner,) = kind
        function = self.program.method(owner, node.attr.value)
        if function is None or owner not in self.program.ours or not is_property(function):
            return None
        value = as_expression(function)
        if value is None:
            return None
        return tree.parenthesised(substituted(value, {"self": node.value}))

    # ---------------------------------------------------------------- which, and with what

    def _callee(self, call: cst.Call, names: Mapping[str, Kind]) -> Key | None:
        callees = self.by_call.get(id(call), ())
        return callees[0] if len(callees) == 1 else None

    def _may_inline(self, key: Key) -> cst.FunctionDef | None:
        owner, name = key
        function = self.graph.function(key)
        if function is None or (owner or name) not in self.program.ours or key == self.caller:
            return None
        if owner is not None and (name in ("__init__", "forward") or is_property(function)):
            return None
        if key in self.graph.unseen or (function.decorators and not is_static(function)):
            return None
        if any(
            isinstance(i, (cst.Yield, cst.FunctionDef, cst.Lambda))
            for s in tree.body_of(function)
            for i in tree.walk(s)
        ):
            return None
        if name in tree.loaded_names(function.body):
            return None
        return function


def _free(mapping: Mapping[str, cst.BaseExpression]) -> set[str]:
    """Names that the arguments read, which the statements may not bind."""
    return {n for value in mapping.values() for n in tree.loaded_names(value)}


def _returns(statements: list[Any]) -> bool:
    return any(isinstance(item, cst.Return) for s in statements for item in tree.own(s))


def _always_returns(statements: list[Any]) -> bool:
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, cst.If) and last.orelse is not None:
        orelse = last.orelse
        other = [orelse] if isinstance(orelse, cst.If) else list(tree.body_of(orelse))
        return _always_returns(list(tree.body_of(last))) and _always_returns(other)
    return isinstance(last, cst.SimpleStatementLine) and isinstance(
        last.body[-1], (cst.Return, cst.Raise)
    )
