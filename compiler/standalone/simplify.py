"""Simplify: one function's text with everything decided that its own text decides.

The mesh is the constant of one process: a degree is 1 wherever it is read. Tests of literals, of
`None` where a kind says there is none or nothing else, and of classes are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from specc.runtime import Axis, Mesh

from .. import tree
from ..value import Scope, Unknown, evaluate, literal
from .kinds_of import NONE, Environment, Kind, Kinds, class_names, never_none
from .local_names import bound_once, choices
from .outside import without_defaults
from .program import Program, is_empty
from .purity import is_harmless, is_literal, is_pure

_NOTHING = Scope({})
_MESH = Mesh.single()


class Simplifier:
    """Folds one function of the program.

    `constants`: attributes that are one literal, by class and name. `records`: classes of data.
    """

    def __init__(
        self,
        program: Program,
        kinds: Kinds,
        constants: dict[tuple[str, str], cst.BaseExpression],
        records: frozenset[str],
        owner: str | None,
        function: cst.FunctionDef,
    ) -> None:
        self.program, self.kinds, self.constants, self.records = program, kinds, constants, records
        self.ours = program.is_ours(owner, function)
        self.names: Environment = kinds.environment(owner, function)
        self.function = function
        # Numbers of the mesh, which its arithmetic goes with; held, so that no id is used twice.
        self.degrees: dict[int, cst.BaseExpression] = {}
        self.steady = bound_once(function) if self.ours else frozenset()
        self.choices = choices(function, self.steady)
        self.known: dict[str, bool] = {}  # tests whose truth the branches taken so far say

    def result(self) -> cst.FunctionDef:
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
            new = tree.rebuild(small, self.expression)
            return None if _truth(new.test) is True and new is not small else new
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
        from .program import own_body

        return is_empty(own_body(callee)) and all(
            is_harmless(a.value, self.records) for a in value.args
        )

    def _if(self, node: cst.If, rest: Sequence[Any]) -> list[Any]:
        test = self._test(node.test)
        known = _truth(test)
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
        if not rest and orelse is None and len(body) == 1 and _is_bare_return(body[0]):
            if self.ours and is_harmless(test, self.records) and self._ends_function(node):
                return []
        if test is node.test and orelse is node.orelse and _same(body, tree.body_of(node)):
            return [node]
        return [_changed(node, body).with_changes(test=test, orelse=orelse)]

    def _ends_function(self, node: cst.If) -> bool:
        body = tree.body_of(self.function)
        return bool(body) and body[-1] is node

    def _note(self, test: cst.BaseExpression, holds: bool) -> None:
        """Remember a test's truth, where what it reads stays what it is."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            self._note(test.expression, not holds)
        elif isinstance(test, cst.BooleanOperation):
            if holds is isinstance(test.operator, cst.And):
                self._note(test.left, holds)
                self._note(test.right, holds)
        elif is_pure(test) and set(tree.loaded_names(cst.Expr(test))) <= self.steady:
            self.known[_words(test)] = holds
            opposite = _denied(cst.UnaryOperation(cst.Not(), tree.bare(test)))
            if not isinstance(opposite, cst.UnaryOperation):
                self.known[_words(opposite)] = not holds

    # ---------------------------------------------------------------- expressions

    def expression(self, node: Any) -> Any:
        """The folded form of an expression, inner ones first."""
        if isinstance(node, cst.Name):
            return self._number(node)
        if isinstance(node, cst.Lambda):
            return node
        if isinstance(node, cst.IfExp):
            return self._conditional(node)
        if isinstance(node, cst.Attribute):
            value = self.expression(node.value)
            new = node if value is node.value else node.with_changes(value=value)
            return self._attribute(new)
        if isinstance(node, cst.Arg):
            value = tree.bare(self.expression(node.value))
            return node if value is node.value else node.with_changes(value=value)
        if isinstance(node, (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)):
            return node  # its names are its own
        new = tree.rebuild(node, self.expression)
        if isinstance(new, cst.BooleanOperation):
            return self._boolean(new)
        if isinstance(new, cst.Comparison):
            return self._comparison(new)
        if isinstance(new, cst.UnaryOperation):
            return self._unary(new)
        if isinstance(new, cst.BinaryOperation):
            return self._arithmetic(new)
        if isinstance(new, cst.Call):
            return self._call(new)
        return new

    def _number(self, node: cst.Name) -> cst.BaseExpression:
        """A number of the runtime's that has a name there."""
        if node.value in self.names or node.value not in self.program.ours:
            return node
        statement = self.program.statements[node.value]
        if isinstance(statement, cst.SimpleStatementLine):
            small = statement.body[0]
            if isinstance(small, cst.Assign) and is_literal(small.value):
                return small.value
        return node

    def _kind(self, node: cst.BaseExpression) -> Kind:
        return self.kinds.of(node, self.names)

    def _attribute(self, node: cst.Attribute) -> cst.BaseExpression:
        name = node.attr.value
        record = node.value
        if isinstance(record, cst.Call) and tree.dotted(record.func) in self.records:
            part = self._field(record, name)
            if part is not None:
                return part
        kind = self._kind(node.value)
        if kind in ({"Mesh"}, {"Axis"}):
            return self._of_mesh(node, kind)
        classes = class_names(kind, self.program)
        if classes:
            found = [self.constants.get((c, name)) for c in classes]
            if all(
                f is not None and tree.code(f) == tree.code(found[0]) for f in found if found[0]
            ):
                if found[0] is not None:
                    return found[0]
        return node

    def _field(self, call: cst.Call, name: str) -> cst.BaseExpression | None:
        """`Record(a, b).name` is `a` or `b`, where the other does nothing."""
        owner = tree.dotted(call.func) or ""
        fields = self.program.fields(owner)
        given = tree.arguments_by_name(call, list(fields))
        if name not in fields or given is None:
            return None
        if not all(is_harmless(v, self.records) for n, v in given.items() if n != name):
            return None
        part = given.get(name)
        return tree.parenthesised(part) if part is not None else fields[name].value

    def _of_mesh(self, node: cst.Attribute, kind: Kind) -> cst.BaseExpression:
        """What the mesh of one process has, its dtype apart: that is chosen when a model is made."""
        thing = getattr(_MESH if "Mesh" in kind else _MESH.tp, node.attr.value, self)
        if thing is None or type(thing) in (bool, int, str):
            found = literal(thing)
            if type(thing) is int:
                self.degrees[id(found)] = found
            return found
        assert "Mesh" in kind or not isinstance(thing, Axis)
        return node

    def _test(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A test, of which only the truth counts."""
        new = self.expression(node)
        return self._plain_test(new)

    def _plain_test(self, node: Any) -> Any:
        if isinstance(node, cst.BooleanOperation):
            keeps = isinstance(node.operator, cst.And)
            left, right = self._plain_test(node.left), self._plain_test(node.right)
            if _truth(right) is keeps:
                return left
            if _truth(left) is keeps:
                return right
            if _truth(right) is (not keeps) and is_pure(left):
                return right
            if left is not node.left or right is not node.right:
                return node.with_changes(left=left, right=right)
        return node

    def _conditional(self, node: cst.IfExp) -> cst.BaseExpression:
        test = self._test(node.test)
        known = _truth(test)
        if known is not None:
            taken = self.expression(node.body if known else node.orelse)
            return tree.in_place_of(node, taken) if node.lpar else taken
        body, orelse = self.expression(node.body), self.expression(node.orelse)
        if test is node.test and body is node.body and orelse is node.orelse:
            return node
        return node.with_changes(test=test, body=body, orelse=orelse)

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        is_and = isinstance(node.operator, cst.And)
        left = _truth(node.left)
        if left is None and not is_and and self._kind(node.left) == NONE:
            left = False
        if left is not None:
            return tree.in_place_of(node, node.right if left is is_and else node.left)
        right = _truth(node.right)
        is_bool = isinstance(node.right, cst.Name) and node.right.value in ("True", "False")
        if right is not None and is_bool and right is not is_and and is_pure(node.left):
            return node.right if _gives_bool(node.left) else node
        if right is is_and and is_bool and _gives_bool(node.left):
            return tree.in_place_of(node, node.left)
        return node

    def _comparison(self, node: cst.Comparison) -> cst.BaseExpression:
        known = _evaluated(node)
        if known is not None:
            return known
        if _words(node) in self.known:
            return cst.Name(str(self.known[_words(node)]))
        if len(node.comparisons) != 1:
            return node
        target = node.comparisons[0]
        operator, right = target.operator, target.comparator
        if isinstance(operator, (cst.Is, cst.IsNot)) and _is_none(right):
            kind = self._kind(node.left)
            if is_pure(node.left) or is_harmless(node.left, self.records):
                if kind == NONE:
                    return cst.Name("True" if isinstance(operator, cst.Is) else "False")
                if never_none(kind):
                    return cst.Name("False" if isinstance(operator, cst.Is) else "True")
        choice = node.left
        if isinstance(choice, cst.Name):
            choice = self.choices.get(choice.value, choice)
        if isinstance(choice, cst.IfExp) and isinstance(operator, cst.Equal):
            found = _compared_choice(choice, right)
            return node if found is None else self.expression(found)
        return node

    def _unary(self, node: cst.UnaryOperation) -> cst.BaseExpression:
        if isinstance(node.operator, cst.Not):
            inner = self._plain_test(node.expression)
            known = _truth(inner)
            if known is not None:
                return cst.Name(str(not known))
            if inner is not node.expression:
                node = node.with_changes(expression=tree.parenthesised(inner))
            return _denied(node)
        return node

    def _arithmetic(self, node: cst.BinaryOperation) -> cst.BaseExpression:
        """A number with a degree of the mesh: `length * 1`, `heads // 1`, `0 * heads`."""
        left, right = self.degrees.get(id(node.left)), self.degrees.get(id(node.right))
        if left is None and right is None:
            return node
        one = {tree.code(d): d for d in (left, right) if d is not None}
        if left is not None and right is not None:
            known = _evaluated(node)
            if isinstance(known, cst.Integer):
                self.degrees[id(known)] = known
                return known
        if isinstance(node.operator, (cst.Multiply,)):
            if "0" in one and is_pure(node):
                return one["0"]
            if "1" in one:
                return tree.in_place_of(node, node.right if left is not None else node.left)
        by_one = isinstance(node.operator, (cst.FloorDivide, cst.Divide)) and right is not None
        if by_one and "1" in one:
            return tree.in_place_of(node, node.left)
        if isinstance(node.operator, cst.Add) and "0" in one:
            return tree.in_place_of(node, node.right if left is not None else node.left)
        return node

    def _call(self, node: cst.Call) -> cst.BaseExpression:
        node = _without_stars(node)
        dotted = tree.dotted(node.func)
        if dotted == "isinstance" and len(node.args) == 2:
            return self._isinstance(node)
        if dotted == "getattr" and len(node.args) == 2:
            name = node.args[1].value
            if isinstance(name, cst.SimpleString) and name.raw_value.isidentifier():
                owner = tree.parenthesised(node.args[0].value)
                return cst.Attribute(owner, cst.Name(name.raw_value))
        node = without_defaults(node, self.program.imports) if self.ours else node
        if isinstance(node.func, cst.Lambda) and not node.args:
            if not tree.every_parameter(node.func):
                return tree.parenthesised(node.func.body)
        return node

    def _isinstance(self, node: cst.Call) -> cst.BaseExpression:
        thing, wanted = node.args[0].value, tree.dotted(node.args[1].value)
        kind = self._kind(thing)
        if not is_harmless(thing, self.records) or wanted not in self.program.statements:
            return node
        names = kind - NONE
        if not all(self.program.class_of(n) is not None for n in names) or not kind:
            return node
        answers = {self._is_a(n, wanted) for n in names} | ({False} if kind & NONE else set())
        return cst.Name(str(answers.pop())) if len(answers) == 1 else node

    def _is_a(self, name: str, wanted: str) -> bool:
        return name == wanted or any(self._is_a(b, wanted) for b in self.program.bases(name))


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


def _words(node: cst.BaseExpression) -> str:
    """An expression's text, however it is broken."""
    return " ".join(tree.code(tree.bare(node)).split())


def _is_bare_return(statement: Any) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Return) and (small.value is None or _is_none(small.value))


def _is_none(node: Any) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _evaluated(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """What an expression of literals comes to."""
    try:
        found = evaluate(node, _NOTHING).object
    except Unknown:
        return None
    return literal(found) if found is None or type(found) in (bool, int, float, str) else None


def _truth(node: Any) -> bool | None:
    """The truth of a literal."""
    if not is_literal(node):
        return None
    try:
        return bool(evaluate(node, _NOTHING).object)
    except Unknown:
        return None


def _gives_bool(node: Any) -> bool:
    """Whether an expression is True or False, if it is no comparison of tensors."""
    if isinstance(node, cst.BooleanOperation):
        return _gives_bool(node.left) and _gives_bool(node.right)
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    return isinstance(node, cst.Comparison)


def _denied(node: cst.UnaryOperation) -> cst.BaseExpression:
    """`not a is None` is `a is not None`, and `not not a` in a test is what it denies."""
    inner = node.expression
    if isinstance(inner, cst.Comparison) and len(inner.comparisons) == 1:
        target = inner.comparisons[0]
        opposite = {cst.Is: cst.IsNot, cst.IsNot: cst.Is, cst.In: cst.NotIn, cst.NotIn: cst.In}
        other = opposite.get(type(target.operator))
        if other is not None:
            new = inner.with_changes(comparisons=[target.with_changes(operator=other())])
            return new.with_changes(lpar=node.lpar, rpar=node.rpar)
    return node


def _compared_choice(choice: cst.IfExp, right: cst.BaseExpression) -> cst.BaseExpression | None:
    """`("a" if test else "b") == "a"` is `test`."""
    if not (is_literal(choice.body) and is_literal(choice.orelse) and is_literal(right)):
        return None
    answers = [
        _evaluated(cst.Comparison(part, [cst.ComparisonTarget(cst.Equal(), right)]))
        for part in (choice.body, choice.orelse)
    ]
    texts = [tree.code(a) if a is not None else "" for a in answers]
    if texts == ["True", "False"]:
        return tree.parenthesised(choice.test)
    if texts == ["False", "True"]:
        return cst.UnaryOperation(cst.Not(), tree.parenthesised(choice.test))
    return answers[0] if texts[0] == texts[1] else None


def _without_stars(call: cst.Call) -> cst.Call:
    """`f(*(a, b))` is `f(a, b)`."""
    if not any(a.star == "*" and isinstance(a.value, cst.Tuple) for a in call.args):
        return call
    args: list[cst.Arg] = []
    for arg in call.args:
        if arg.star == "*" and isinstance(arg.value, cst.Tuple):
            args += [
                cst.Arg(e.value, star="*" if isinstance(e, cst.StarredElement) else "")
                for e in arg.value.elements
            ]
        else:
            args.append(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT))
    return call.with_changes(args=args)
