"""Simplify: one function's text with everything decided that its own text decides.

The mesh is the constant of one process: a degree is 1 wherever it is read. Tests of literals, of
`None` where a kind says there is none or nothing else, and of classes are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from .. import tree
from .literal_tests import is_none, truth_of
from .program import is_empty, own_body
from .purity import is_harmless
from .simplify_expressions import Expressions


class Simplifier(Expressions):
    """Folds one function of the program."""

    def result(self) -> Any:
        body = self.block(tree.body_of(self.function))
        while body and _is_bare_return(body[-1]):
            body = body[:-1]
        return _changed(self.function, body)

    # ---------------------------------------------------------------- statements

    def block(self, statements: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        before = dict(self.known)
        for position, statement in enumerate(statements):
            new = self.statement(statement, statements[position + 1 :])
            out.extend(new)
            if new and _leaves(new[-1]):
                break
            last = new[-1] if new else None
            if isinstance(last, cst.If) and last.orelse is None and _always_leaves(last):
                self._note(last.test, False)
        self.known = before
        if len(out) > 1:
            out = [s for s in out if not is_empty([s]) or _has_words(s)]
        return out

    def statement(self, node: Any, rest: Sequence[Any] = ()) -> list[Any]:
        if isinstance(node, cst.SimpleStatementLine):
            return self._line(node)
        if isinstance(node, cst.If):
            return self._if(node, rest)
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return [node]
        new = tree.rebuild(node, self._inside)
        if (
            self.ours
            and isinstance(new, cst.For)
            and new.orelse is None
            and is_empty(tree.body_of(new))
            and is_harmless(new.iter, self.records)
        ):
            return []
        return [new]

    def _inside(self, child: Any) -> Any:
        if isinstance(child, cst.IndentedBlock):
            body = self.block(child.body)
            same = len(body) == len(child.body) and all(
                a is b for a, b in zip(body, child.body, strict=True)
            )
            return child if same else child.with_changes(body=body or [_pass()])
        if isinstance(child, cst.BaseExpression):
            return self.expression(child)
        return tree.rebuild(child, self._inside)

    def _line(self, node: cst.SimpleStatementLine) -> list[Any]:
        smalls: list[Any] = []
        for small in node.body:
            new = self._small(small)
            if new is not None:
                smalls.append(new)
        if not smalls:
            return []
        if len(smalls) == len(node.body) and all(
            a is b for a, b in zip(smalls, node.body, strict=True)
        ):
            return [node]
        smalls[-1] = smalls[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return [node.with_changes(body=smalls)]

    def _small(self, small: Any) -> Any:
        if isinstance(small, cst.Expr):
            if isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString)):
                return small  # words
            new = tree.rebuild(small, self.expression)
            if self.ours and is_harmless(new.value, self.records):
                return None
            return None if self._does_nothing(new.value) else new
        if isinstance(small, (cst.Assign, cst.AnnAssign)):
            value = small.value
            folded = None if value is None else self.expression(value)
            if isinstance(small, cst.Assign):
                targets = [
                    t if isinstance(t.target, cst.Name) else tree.rebuild(t, self._target)
                    for t in small.targets
                ]
                same = all(a is b for a, b in zip(targets, small.targets, strict=True))
                if folded is value and same:
                    return small
                return small.with_changes(value=folded, targets=targets)
            return small if folded is value else small.with_changes(value=folded)
        if isinstance(small, cst.Assert):
            test = self.expression(small.test)
            if test is small.test:
                return small
            return None if truth_of(test) else small.with_changes(test=test)
        return tree.rebuild(small, self.expression)

    def _target(self, node: Any) -> Any:
        if isinstance(node, cst.Attribute):
            return node
        return self.expression(node) if isinstance(node, cst.Subscript) else node

    def _does_nothing(self, value: cst.BaseExpression) -> bool:
        """A call of a function of the program that folding left empty."""
        if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Name):
            return False
        callee = self.program.statements.get(value.func.value)
        if not isinstance(callee, cst.FunctionDef) or value.func.value not in self.program.ours:
            return False
        return is_empty(own_body(callee)) and all(
            is_harmless(a.value, self.records) for a in value.args
        )

    def _if(self, node: cst.If, rest: Sequence[Any]) -> list[Any]:
        test = self._test(node.test)
        known = truth_of(test)
        if known is True:
            note = node.body.header.comment if isinstance(node.body, cst.IndentedBlock) else None
            lines = [*node.leading_lines, *([cst.EmptyLine(comment=note)] if note else [])]
            return tree.with_leading(self.block(tree.body_of(node)), lines)
        if known is False:
            blank = [line for line in node.leading_lines if line.comment is None]
            if node.orelse is None:
                return []
            if isinstance(node.orelse, cst.If):
                lines = [*blank, *node.orelse.leading_lines]
                return self._if(node.orelse.with_changes(leading_lines=lines), rest)
            body = self.block(tree.body_of(node.orelse))
            return tree.with_leading(body, [*blank, *node.orelse.leading_lines])
        before = dict(self.known)
        self._note(test, True)
        body = self.block(tree.body_of(node))
        self.known = dict(before)
        self._note(test, False)
        orelse = node.orelse
        if isinstance(orelse, cst.If):
            other = self._if(orelse, ())
            if len(other) == 1 and isinstance(other[0], cst.If):
                orelse = other[0]
            else:
                orelse = cst.Else(cst.IndentedBlock(other)) if other else None
        elif orelse is not None:
            other = self.block(tree.body_of(orelse))
            orelse = None if is_empty(other) else _changed(orelse, other)
        self.known = before
        if orelse is None and is_empty(body) and is_harmless(test, self.records):
            return []
        only_leaves = not rest and orelse is None and len(body) == 1 and _is_bare_return(body[0])
        droppable = only_leaves and self.ours and is_harmless(test, self.records)
        if droppable and self._ends_function(node):
            return []
        if test is node.test and orelse is node.orelse and _same(body, tree.body_of(node)):
            return [node]
        return [_changed(node, body).with_changes(test=test, orelse=orelse)]

    def _ends_function(self, node: cst.If) -> bool:
        body = tree.body_of(self.function)
        return bool(body) and body[-1] is node


def _changed(node: Any, body: list[Any]) -> Any:
    """The compound statement with this body; itself where nothing changed."""
    return node if _same(body, tree.body_of(node)) else tree.with_body(node, body)


def _same(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def _pass() -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Pass()])


def _has_words(statement: Any) -> bool:
    return any(line.comment is not None for line in statement.leading_lines)


def _leaves(statement: Any) -> bool:
    if isinstance(statement, cst.If) and statement.orelse is not None:
        body, orelse = tree.body_of(statement), statement.orelse
        other = [orelse] if isinstance(orelse, cst.If) else tree.body_of(orelse)
        return bool(body) and bool(other) and _leaves(body[-1]) and _leaves(other[-1])
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[-1], (cst.Return, cst.Raise)
    )


def _always_leaves(node: cst.If) -> bool:
    body = tree.body_of(node)
    return bool(body) and _leaves(body[-1])


def _is_bare_return(statement: Any) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Return) and (small.value is None or is_none(small.value))
