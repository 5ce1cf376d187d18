"""Fold: one method's text with every decision taken, everything else as its author wrote it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .base_constructor import splice_base
from .comments import fold_comments, fold_docstring
from .construct import IDENTITY
from .exposure import ADDING
from .expressions import ExpressionFolder, module_target
from .facts import join
from .value import (
    Grade,
    Unknown,
    evaluate,
    truth,
)

Statements = list[Any]
_PASS = cst.SimpleStatementLine(body=[cst.Pass()])


class Folder(ExpressionFolder):
    """Folds the statements of one method (or of a base's constructor spliced into it)."""

    def block(self, statements: Sequence[Any]) -> Statements:
        out: Statements = []
        blank: list[cst.EmptyLine] = []  # of a statement that went, for the next one
        for position, statement in enumerate(statements):
            if position == 0 and tree.docstring_of([statement]) is not None and out == []:
                new = fold_docstring(statement, self.scope)
            else:
                new = self.statement(fold_comments(statement, self.scope))
            spliced = isinstance(statement, cst.If) and not (
                len(new) == 1 and isinstance(new[0], cst.If)
            )
            if not new and out:
                self.facts.removed_after[id(out[-1])] = out[-1]
                blank = (
                    blank
                    or [x for x in getattr(statement, "leading_lines", ()) if x.comment is None][:1]
                )
            if (
                new
                and blank
                and not any(x.comment is None for x in getattr(new[0], "leading_lines", ()))
            ):
                first = tree.with_leading(new, blank)[0]
                for side in (self.facts.removed_before, self.facts.removed_after):
                    if id(new[0]) in side:
                        side[id(first)] = first
                new = [first, *new[1:]]
            blank = [] if new else blank
            if spliced and new:
                self.facts.removed_before[id(new[0])] = new[0]
                self.facts.removed_after[id(new[-1])] = new[-1]
            out.extend(new)
            if spliced and new and _leaves(new[-1]):
                break  # what follows a folded return is never reached
        return out

    def statement(self, node: Any) -> Statements:
        if isinstance(node, cst.SimpleStatementLine):
            return self._line(node)
        if isinstance(node, cst.If):
            return self._if(node)
        if isinstance(node, cst.For):
            return [self._for(node)]
        if isinstance(node, (cst.While, cst.Try, cst.TryStar, cst.With)):
            return [self._opaque(node)]
        # Nested functions and classes, match: bound late or not understood, so left as they are.
        self._forget_stores(node)
        self.leave(node)
        return [node]

    def _line(self, node: cst.SimpleStatementLine) -> Statements:
        spliced = splice_base(self, node)
        if spliced is not None:
            return spliced
        smalls: list[Any] = []
        for small in node.body:
            new = self._small(small)
            if new is not None:
                smalls.append(new)
        if not smalls:
            return []
        if all(a is b for a, b in zip(smalls, node.body, strict=False)) and len(smalls) == len(
            node.body
        ):
            return [node]
        smalls[-1] = smalls[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return [node.with_changes(body=smalls)]

    def _small(self, node: cst.BaseSmallStatement) -> cst.BaseSmallStatement | None:
        if isinstance(node, cst.Assign):
            value = self._known(node.value)
            self._own(node.value, [t.target for t in node.targets])
            new = node.with_changes(
                value=self.expression(node.value), targets=[self._target(t) for t in node.targets]
            )
            for target in node.targets:
                self._bind(target.target, value)
            if isinstance(new.value, cst.Name) and new.value.value == IDENTITY:
                return None  # a layer that is not there
            new = node if tree.same_parts(new, node) else new
            if self.constructor is not None and isinstance(new.value, cst.Dict):
                self.constructor.note_table(new)
            return new
        if isinstance(node, cst.AnnAssign):
            value = None if node.value is None else self._known(node.value)
            if node.value is not None:
                self._own(node.value, [node.target])
            folded = None if node.value is None else self.expression(node.value)
            self._bind(node.target, value)
            if isinstance(folded, cst.Name) and folded.value == IDENTITY:
                return None
            return node if folded is node.value else node.with_changes(value=folded)
        if isinstance(node, cst.AugAssign):
            self._bind(node.target, None)
            folded = self.expression(node.value)
            return node if folded is node.value else node.with_changes(value=folded)
        if isinstance(node, cst.Assert):
            try:
                known = truth(node.test, self.scope)
            except Unknown:
                return tree.rebuild(node, self.expression)
            if known.object and known.grade is Grade.DECISION:
                self.facts.decide(node.test, known, self.kind)
                return None
            return tree.rebuild(node, self.expression)
        if isinstance(node, (cst.Del, cst.Import, cst.ImportFrom)):
            self._forget_stores(node)
            return node
        if isinstance(node, cst.Expr):
            self._own_added(node.value)
        return tree.rebuild(node, self.expression)

    def _own(self, value: cst.BaseExpression, targets: list[cst.BaseExpression]) -> None:
        """Note the children in a value that goes straight to attributes of `self`.

        Whatever else a child is bound to is another name to call it by, which nobody follows.
        """
        if self.constructor is not None and all(_is_of_self(t) for t in targets):
            self._own_parts(value)

    def _own_added(self, node: cst.BaseExpression) -> None:
        """`self.layers.append(child)` owns it too."""
        if (
            (
                self.constructor is not None
                and isinstance(node, cst.Call)
                and isinstance(node.func, cst.Attribute)
            )
            and node.func.attr.value in ADDING
            and _is_of_self(node.func.value)
        ):
            for arg in node.args:
                self._own_parts(arg.value)

    def _own_parts(self, node: cst.CSTNode) -> None:
        self.owned.add(id(node))
        inner: list[cst.CSTNode] = []
        if isinstance(node, cst.IfExp):
            inner = [node.body, node.orelse]
        elif isinstance(node, (cst.List, cst.Tuple, cst.Dict)):
            inner = [e.value for e in node.elements]
        elif isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            inner = [node.elt]
        elif isinstance(node, cst.DictComp):
            inner = [node.value]
        elif isinstance(node, cst.Call) and self._keeps_modules(node.func):
            inner = [a.value for a in node.args]
        for part in inner:
            self._own_parts(part)

    def _keeps_modules(self, func: cst.BaseExpression) -> bool:
        """Whether what is called only holds the modules that it is given, for all to see."""
        try:
            callee = evaluate(func, self.scope).object
        except Unknown:
            return False
        return any(
            callee is c
            for c in (nn.ModuleList, nn.Sequential, nn.ModuleDict, list, dict, tuple, OrderedDict)
        )

    def _target(self, target: cst.AssignTarget) -> cst.AssignTarget:
        """Folds what a target reads (`a[self.i] = ...`), not what it stores."""
        if isinstance(target.target, cst.Attribute):
            return target.with_changes(
                target=target.target.with_changes(value=self._without_escape(target.target.value))
            )
        if isinstance(target.target, cst.Subscript):
            return target.with_changes(target=self.expression(target.target))
        return target

    def _if(self, node: cst.If) -> Statements:
        try:
            test = truth(node.test, self.scope)
        except Unknown:
            test = None
        if test is not None and self._may_fold(node, node.test, test):
            return self._take(node, bool(test.object))
        return [self._dynamic_if(node)]

    def _take(self, node: cst.If, holds: bool) -> Statements:
        if holds:
            comment = _header_comment(node.body)
            note = [] if comment is None else [cst.EmptyLine(comment=comment)]
            return tree.with_leading(self.block(tree.body_of(node)), [*node.leading_lines, *note])
        # Words above the `if` speak of its own branch: they go with it, blank lines stay.
        blank = [line for line in node.leading_lines if line.comment is None]
        if node.orelse is None:
            return []
        if isinstance(node.orelse, cst.If):
            other = node.orelse
            return self.statement(other.with_changes(leading_lines=[*blank, *other.leading_lines]))
        return tree.with_leading(
            self.block(tree.body_of(node.orelse)), [*blank, *node.orelse.leading_lines]
        )

    def _dynamic_if(self, node: cst.If) -> cst.If:
        """Both branches stay; afterwards a name is known only where both agree."""
        test = self.expression(node.test)
        before = self.scope
        self.scope = before.copy()
        body = tree.with_body(node, self.block(tree.body_of(node))).body
        after_body, left_body = self.scope, _leaves_any(node)
        self.scope = before.copy()
        orelse: Any = None
        if isinstance(node.orelse, cst.If):
            new = self.statement(node.orelse)
            if len(new) == 1 and isinstance(new[0], cst.If):
                orelse = new[0]
            elif new:
                orelse = cst.Else(body=cst.IndentedBlock(body=new))
        elif node.orelse is not None:
            statements = self.block(tree.body_of(node.orelse))
            orelse = tree.with_body(node.orelse, statements) if statements else None
        after_else = self.scope
        if left_body:
            self.scope = after_else
        else:
            names = {
                name: join(after_body.names.get(name), after_else.names.get(name))
                for name in {**after_body.names, **after_else.names}
            }
            self.scope = before.copy()
            self.scope.names = names
        return node.with_changes(test=test, body=body, orelse=orelse)

    def _for(self, node: cst.For) -> cst.For:
        iterated = self._loop_modules(node.iter, node.target)
        new_iter = node.iter if iterated is not None else self.expression(node.iter)
        self._forget_stores(node)
        if iterated is not None:
            self.loops[module_target(node.target)] = iterated
        body = tree.with_body(node, self.block(tree.body_of(node))).body
        orelse = node.orelse
        if orelse is not None:
            orelse = tree.with_body(orelse, self.block(tree.body_of(orelse)))
        self._forget_stores(node)
        return node.with_changes(iter=new_iter, body=body, orelse=orelse)

    def _opaque(self, node: Any) -> Any:
        """Loops, try and with: any of their statements may run any number of times."""
        self._forget_stores(node)

        def inside(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                new = child.with_changes(body=self.block(child.body) or [_PASS])
                self._forget_stores(node)
                return new
            if isinstance(child, cst.BaseExpression):
                return self.expression(child)
            return tree.rebuild(child, inside)

        return tree.rebuild(node, inside)


def _is_of_self(node: cst.CSTNode) -> bool:
    """`self.a`, `self.a.b`, `self.a["b"]`: something of `self`'s."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        if tree.self_attribute(node) is not None:
            return True
        node = node.value
    return False


def _header_comment(suite: cst.BaseSuite) -> cst.Comment | None:
    return suite.header.comment if isinstance(suite, cst.IndentedBlock) else None


def _leaves(statement: Any) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[-1], (cst.Return, cst.Raise)
    )


def _leaves_any(node: cst.If) -> bool:
    statements = tree.body_of(node)
    return bool(statements) and _leaves(statements[-1])
