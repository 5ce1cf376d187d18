"""Which facts folded a line: what was decided in its statement, around it and next to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from specc.templates import IdentityOp

from ..facts import Decision
from ..pipeline import Translated
from .answer import Because
from .code_map import Origin, Part, Places, code_of
from .field_facts import FieldFacts
from .shown import shown
from .statements import Definition, Statement, Statements, first_line


@dataclass(frozen=True)
class _Decided:
    """A decision with its place in a file."""

    origin: Origin
    decision: Decision

    @property
    def holds(self) -> bool:
        return bool(self.decision.value.object)

    def covers(self, node: ast.expr) -> bool:
        file = self.origin.file
        own, end = self.origin.first, self.origin.last
        first = node.lineno, file.column(node.lineno, node.col_offset)
        line = node.end_lineno or node.lineno
        last = line, file.column(line, node.end_col_offset or 0)
        return own <= first and last <= end


class Decisions:
    """What folding decided, by kind and by file."""

    def __init__(self, traced: Translated, places: Places, fields: FieldFacts) -> None:
        self._fields = fields
        self._residuals = traced.residuals
        self._of: dict[str, list[_Decided]] = {}
        seen: set[tuple[int, int, str]] = set()
        for decision in traced.facts.decisions:
            origin = places.of(decision.node)
            mark = (id(decision.node), decision.kind.index, _outcome(decision))
            if origin is not None and mark not in seen:
                seen.add(mark)
                self._of.setdefault(origin.file.path, []).append(_Decided(origin, decision))

    def about(
        self, path: str, statement: Statement, source: Statements, part: Part, left: set[int]
    ) -> list[Because]:
        """Why a statement of a file stands in a part of the page as it does.

        `left` are the lines of the file that are on the page, for this class.
        """
        found = self._for(path, part)
        reasons: list[Because] = []
        folded: list[ast.stmt] = []
        for parent in statement.parents:
            if not isinstance(parent, ast.If):
                continue
            test = next((d for d in found if d.covers(parent.test)), None)
            if test is not None:
                folded.append(parent)
                reasons.append(self._branch(path, parent, test, statement))
        reasons += self._inside(path, statement, found)
        if isinstance(statement.node, ast.stmt) and not isinstance(statement.node, Definition):
            for each in [statement.node, *folded]:
                reasons += self._beside(path, source.at(first_line(each)), found, left)
        return list(dict.fromkeys(reasons))

    def _for(self, path: str, part: Part) -> list[_Decided]:
        """The decisions for a part; where its lines are those of a class that is not on the page
        any more (a norm that became the runtime's), that one's.
        """
        of_file = self._of.get(path, [])
        if part.kind is None:  # a property: folded by its own config
            number = part.config
            return [d for d in of_file if self._fields.numbers(d.decision.value.fields) <= {number}]
        own = [d for d in of_file if d.decision.kind is part.kind]
        gone = [d for d in of_file if d.decision.kind not in self._residuals]
        known = {d.origin.first for d in own}
        return own + [d for d in gone if d.origin.first not in known]

    def _branch(self, path: str, node: ast.If, test: _Decided, statement: Statement) -> Because:
        inside = any(statement.node is s or s in statement.parents for s in node.body)
        shown_test = f"`if {code_of(test.decision.node)}`"
        text = f"{shown_test} {_outcome(test.decision)}"
        if inside and node.orelse:
            first = first_line(node.orelse[0])
            text += f": {_are(first, node.end_lineno or first)} gone, its other side"
        elif not inside:
            last = max(s.end_lineno or 0 for s in node.body)
            text += f": {_are(node.lineno, last)} gone, the other side stays"
        return self._because(text, path, node.lineno, test)

    def _inside(self, path: str, statement: Statement, found: list[_Decided]) -> Iterator[Because]:
        """What was decided in the statement's own lines; of nested expressions the outermost."""
        first, last = statement.first, statement.last
        own = [d for d in found if first <= d.origin.line and d.origin.end_line <= last]
        for each in own:
            if not any(_within(each.origin, other.origin) for other in own):
                code = code_of(each.decision.node)
                if code != _plain(each.decision):
                    named = isinstance(each.decision.node, (cst.Name, cst.Attribute))
                    came_to = f"is {_plain(each.decision)}" if named else _outcome(each.decision)
                    text = f"`{code}` {came_to}"
                    yield self._because(text, path, each.origin.line, each)

    def _beside(
        self, path: str, statement: Statement, found: list[_Decided], left: set[int]
    ) -> Iterator[Because]:
        """The statements next to it that are not on the page, up to the next one that is."""
        before, after = statement.siblings()
        for row, reached in ((before, True), (after, not _leaves(statement.node))):
            for node in row:
                lines = set(range(first_line(node), (node.end_lineno or 0) + 1))
                if lines & left or _is_docstring(node):
                    break
                yield self._gone(path, node, found, reached)

    def _gone(self, path: str, node: ast.stmt, found: list[_Decided], reached: bool) -> Because:
        where = _are(first_line(node), node.end_lineno or 0)
        if isinstance(node, ast.If):
            test = next((d for d in found if d.covers(node.test)), None)
            if test is not None:
                text = f"`if {code_of(test.decision.node)}` {_outcome(test.decision)}"
                nothing_left = test.holds or node.orelse
                then = ", and nothing on the page reads what it does" if nothing_left else ""
                return self._because(f"{text}{then}: {where} gone", path, node.lineno, test)
        if not reached:
            text = f"{where} gone: what stands above always returns"
            return Because(text, f"{shown(path)}:{first_line(node)}")
        if _is_super_init(node):
            text = f"{where} gone: the base's constructor is written out in its place"
            return Because(text, f"{shown(path)}:{first_line(node)}")
        lines = range(first_line(node), (node.end_lineno or 0) + 1)
        nothing = next(
            (d for d in found if d.origin.line in lines and d.decision.value.object is IdentityOp),
            None,
        )
        if nothing is not None:
            text = f"`{code_of(nothing.decision.node)}` {_outcome(nothing.decision)}: {where} gone"
            return self._because(text, path, first_line(node), nothing)
        if isinstance(node, ast.Return):
            text = f"{where} joined with what it returns, `{_first_words(node)}`"
            return Because(text, f"{shown(path)}:{first_line(node)}")
        text = f"{where} gone, `{_first_words(node)}`: once folded, nothing on the page reads it"
        return Because(text, f"{shown(path)}:{first_line(node)}")

    def _because(self, text: str, path: str, line: int, decided: _Decided) -> Because:
        fields = self._fields.of(decided.decision.value.fields)
        return Because(text, f"{shown(path)}:{line}", fields)


def _within(inner: Origin, outer: Origin) -> bool:
    if inner is outer:
        return False
    same = (inner.first, inner.last) == (outer.first, outer.last)
    return outer.first <= inner.first and inner.last <= outer.last and not same


def _outcome(decision: Decision) -> str:
    value = decision.value.object
    if value is IdentityOp:
        return "is an identity, which does nothing"
    if value is True:
        return "holds"
    if value is False:
        return "does not hold"
    return f"is {value!r}"


def _plain(decision: Decision) -> str:
    if decision.value.object is IdentityOp:
        return "an identity, which does nothing"
    return repr(decision.value.object)


def _are(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first}-{last} are"


def _first_words(node: ast.stmt) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 60 else f"{text[:57]}..."


def _leaves(node: ast.AST) -> bool:
    """Whether a statement of which something is on the page ends the function there: of an `if`
    that was folded, one of the sides did.
    """
    if isinstance(node, ast.If):
        return any(side and _leaves(side[-1]) for side in (node.body, node.orelse))
    return isinstance(node, (ast.Return, ast.Raise))


def _is_super_init(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("super().__init__(")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
