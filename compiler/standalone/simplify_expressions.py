"""Simplify: the expressions of a function, by what the program says of the names in them."""

from __future__ import annotations

from typing import Any

import libcst as cst

from specc.runtime import Axis, Mesh

from .. import tree
from ..value import literal
from .bound_names import Kind
from .kinds_of import NONE, Environment, Kinds, class_names, never_none
from .literal_tests import (
    compared_choice,
    denied,
    evaluated,
    gives_bool,
    is_none,
    truth_of,
    without_stars,
    words_of,
)
from .local_names import bound_once, choices
from .outside import without_defaults
from .program import Program
from .purity import is_harmless, is_literal, is_pure

_MESH = Mesh.single()


class Expressions:
    """Folds the expressions of one function.

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

    def _note(self, test: cst.BaseExpression, holds: bool) -> None:
        """Remember a test's truth, where what it reads stays what it is."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            self._note(test.expression, not holds)
        elif isinstance(test, cst.BooleanOperation):
            if holds is isinstance(test.operator, cst.And):
                self._note(test.left, holds)
                self._note(test.right, holds)
        elif is_pure(test) and set(tree.loaded_names(cst.Expr(test))) <= self.steady:
            self.known[words_of(test)] = holds
            opposite = denied(cst.UnaryOperation(cst.Not(), tree.bare(test)))
            if not isinstance(opposite, cst.UnaryOperation):
                self.known[words_of(opposite)] = not holds

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
            first = found[0]
            if first is not None and all(
                f is not None and tree.code(f) == tree.code(first) for f in found
            ):
                return first
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
        """What the mesh of one process has, but its dtype: that is chosen when a model is made."""
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
        new: cst.BaseExpression = self._plain_test(self.expression(node))
        return new

    def _plain_test(self, node: Any) -> Any:
        if isinstance(node, cst.BooleanOperation):
            keeps = isinstance(node.operator, cst.And)
            left, right = self._plain_test(node.left), self._plain_test(node.right)
            if truth_of(right) is keeps:
                return left
            if truth_of(left) is keeps:
                return right
            if truth_of(right) is (not keeps) and is_pure(left):
                return right
            if left is not node.left or right is not node.right:
                return node.with_changes(left=left, right=right)
        return node

    def _conditional(self, node: cst.IfExp) -> cst.BaseExpression:
        test = self._test(node.test)
        known = truth_of(test)
        if known is not None:
            taken: cst.BaseExpression = self.expression(node.body if known else node.orelse)
            return tree.in_place_of(node, taken) if node.lpar else taken
        body, orelse = self.expression(node.body), self.expression(node.orelse)
        if test is node.test and body is node.body and orelse is node.orelse:
            return node
        return node.with_changes(test=test, body=body, orelse=orelse)

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        is_and = isinstance(node.operator, cst.And)
        left = truth_of(node.left)
        if left is None and not is_and and self._kind(node.left) == NONE:
            left = False
        if left is not None:
            return tree.in_place_of(node, node.right if left is is_and else node.left)
        right = truth_of(node.right)
        is_bool = isinstance(node.right, cst.Name) and node.right.value in ("True", "False")
        if right is not None and is_bool and right is not is_and and is_pure(node.left):
            return node.right if gives_bool(node.left) else node
        if right is is_and and is_bool and gives_bool(node.left):
            return tree.in_place_of(node, node.left)
        return node

    def _comparison(self, node: cst.Comparison) -> cst.BaseExpression:
        known = evaluated(node)
        if known is not None:
            return known
        if words_of(node) in self.known:
            return cst.Name(str(self.known[words_of(node)]))
        if len(node.comparisons) != 1:
            return node
        target = node.comparisons[0]
        operator, right = target.operator, target.comparator
        if isinstance(operator, (cst.Is, cst.IsNot)) and is_none(right):
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
            found = compared_choice(choice, right)
            return node if found is None else self.expression(found)
        return node

    def _unary(self, node: cst.UnaryOperation) -> cst.BaseExpression:
        if isinstance(node.operator, cst.Not):
            inner = self._plain_test(node.expression)
            known = truth_of(inner)
            if known is not None:
                return cst.Name(str(not known))
            if inner is not node.expression:
                node = node.with_changes(expression=tree.parenthesised(inner))
            return denied(node)
        return node

    def _arithmetic(self, node: cst.BinaryOperation) -> cst.BaseExpression:
        """A number with a degree of the mesh: `length * 1`, `heads // 1`, `0 * heads`."""
        left, right = self.degrees.get(id(node.left)), self.degrees.get(id(node.right))
        if left is None and right is None:
            return node
        one = {tree.code(d): d for d in (left, right) if d is not None}
        if left is not None and right is not None:
            known = evaluated(node)
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
        node = without_stars(node)
        dotted = tree.dotted(node.func)
        if dotted == "isinstance" and len(node.args) == 2:
            return self._isinstance(node)
        if dotted == "getattr" and len(node.args) == 2:
            name = node.args[1].value
            if isinstance(name, cst.SimpleString) and name.raw_value.isidentifier():
                owner = tree.parenthesised(node.args[0].value)
                return cst.Attribute(owner, cst.Name(name.raw_value))
        node = without_defaults(node, self.program.imports) if self.ours else node
        function = node.func
        if isinstance(function, cst.Lambda) and not (node.args or tree.every_parameter(function)):
            return tree.parenthesised(function.body)
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
