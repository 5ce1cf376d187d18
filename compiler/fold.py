"""Fold: one method's text with every decision taken, everything else as its author wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst
from torch import nn

from specc.templates import IdentityOp

from . import tree
from .comments import fold_comments, fold_docstring
from .construct import IDENTITY, Constructor
from .errors import refuse, span_of_class
from .facts import Facts, join
from .flatten import Flat, Method
from .kinds import Kind
from .value import (
    NOT_NONE,
    Grade,
    Scope,
    Unknown,
    Value,
    evaluate,
    is_config,
    literal,
    reads_only_config,
    truth,
)

Statements = list[Any]


class Folder:
    """Folds the statements of one method (or of a base's constructor spliced into it)."""

    def __init__(self, facts: Facts, kind: Kind, flat: Flat, method: Method, constructor: Constructor | None) -> None:
        self.facts, self.kind, self.flat, self.method = facts, kind, flat, method
        self.constructor = constructor  # set while folding `__init__`
        self.scope = Scope(vars(_module_of(method.owner)), attributes=self._attribute)
        self.loops: dict[str, list[nn.Module]] = {}  # loop variables over lists of modules

    # ---------------------------------------------------------------- facts

    def _attribute(self, name: str) -> Any:
        if self.constructor is not None or not self.facts.is_stable(self.flat, name):
            raise Unknown
        return self.facts.attribute(self.kind, name)

    def _modules(self, node: cst.BaseExpression) -> list[nn.Module] | None:
        """The modules, over all instances, that a chain like `self.a.b` or a loop variable stands for."""
        if isinstance(node, cst.Name):
            return self.loops.get(node.value)
        if not isinstance(node, cst.Attribute):
            return None
        name = tree.self_attribute(node)
        found: list[Any]
        if name is not None:
            if not self.facts.is_stable(self.flat, name):
                return None
            found = [m._modules.get(name) for m in self.kind.instances]
        else:
            bases = self._modules(node.value)
            if bases is None:
                return None
            found = [m._modules.get(node.attr.value) for m in bases]
        return found if all(isinstance(m, nn.Module) for m in found) else None

    # ---------------------------------------------------------------- statements

    def block(self, statements: Sequence[Any]) -> Statements:
        out: Statements = []
        blank: list[cst.EmptyLine] = []  # of a statement that went, for the next one
        for position, statement in enumerate(statements):
            if position == 0 and tree.docstring_of([statement]) is not None and out == []:
                new = fold_docstring(statement, self.scope)
            else:
                new = self.statement(fold_comments(statement, self.scope))
            spliced = isinstance(statement, cst.If) and not (len(new) == 1 and isinstance(new[0], cst.If))
            if not new and out:
                self.facts.removed_after[id(out[-1])] = out[-1]
                blank = blank or [x for x in getattr(statement, "leading_lines", ()) if x.comment is None][:1]
            if new and blank and not any(x.comment is None for x in getattr(new[0], "leading_lines", ())):
                first = _with_leading(new, blank)[0]
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
        self.scope.forget(tree.stored_names(node))
        self.leave(node)
        return [node]

    def _line(self, node: cst.SimpleStatementLine) -> Statements:
        spliced = self._super_init(node)
        if spliced is not None:
            return spliced
        smalls: list[Any] = []
        for small in node.body:
            new = self._small(small)
            if new is not None:
                smalls.append(new)
        if not smalls:
            return []
        if all(a is b for a, b in zip(smalls, node.body, strict=False)) and len(smalls) == len(node.body):
            return [node]
        smalls[-1] = smalls[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return [node.with_changes(body=smalls)]

    def _small(self, node: cst.BaseSmallStatement) -> cst.BaseSmallStatement | None:
        if isinstance(node, cst.Assign):
            value = self._known(node.value)
            new = node.with_changes(value=self.expression(node.value), targets=[self._target(t) for t in node.targets])
            if isinstance(new.value, cst.Name) and new.value.value == IDENTITY:
                return None  # a layer that is not there
            for target in node.targets:
                self._bind(target.target, value)
            return node if _same(new, node) else new
        if isinstance(node, cst.AnnAssign):
            value = None if node.value is None else self._known(node.value)
            folded = None if node.value is None else self.expression(node.value)
            if isinstance(folded, cst.Name) and folded.value == IDENTITY:
                return None
            self._bind(node.target, value)
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
                self.facts.used_fields |= known.fields
                return None
            return tree.rebuild(node, self.expression)
        if isinstance(node, cst.Del):
            self.scope.forget(tree.stored_names(node))
            return node
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            self.scope.forget(tree.stored_names(node))
            return node
        return tree.rebuild(node, self.expression)

    def _target(self, target: cst.AssignTarget) -> cst.AssignTarget:
        """Folds what a target reads (`a[self.i] = ...`), not what it stores."""
        if isinstance(target.target, cst.Attribute):
            return target.with_changes(
                target=target.target.with_changes(value=self._without_escape(target.target.value))
            )
        if isinstance(target.target, cst.Subscript):
            return target.with_changes(target=self.expression(target.target))
        return target

    def _bind(self, target: cst.BaseExpression, value: Value | None) -> None:
        if isinstance(target, cst.Name):
            self.scope.names[target.value] = value
            self.loops.pop(target.value, None)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._bind(element.value, None)
        elif isinstance(target, cst.StarredElement):
            self._bind(target.value, None)
        else:
            name = tree.self_attribute(target)
            if name is not None and self.constructor is not None:
                stable = self.facts.is_stable(self.flat, name)
                self.scope.names[f"self.{name}"] = value if stable else None

    def _known(self, node: cst.BaseExpression) -> Value | None:
        """The value of an expression about to be bound to a name, or NOT_NONE, or nothing."""
        try:
            return evaluate(node, self.scope)
        except Unknown:
            return Value(NOT_NONE) if self._never_none(node) else None

    def _never_none(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
            return self._never_none(node.right)
        if isinstance(node, cst.IfExp):
            return self._never_none(node.body) and self._never_none(node.orelse)
        if isinstance(node, (cst.BinaryOperation, cst.Tuple, cst.List, cst.Dict, cst.ListComp, cst.FormattedString)):
            return True
        if isinstance(node, cst.Call):
            return _returns_something(node.func, self.scope)
        return False

    def _if(self, node: cst.If) -> Statements:
        try:
            test = truth(node.test, self.scope)
        except Unknown:
            test = None
        if test is not None and self._may_fold(node, node.test, test):
            return self._take(node, bool(test.object))
        return [self._dynamic_if(node)]

    def _may_fold(self, whole: cst.CSTNode, test: cst.BaseExpression, value: Value) -> bool:
        """Whether the page may lose this test. One that reads numbers becomes an assumption of the page."""
        if value.grade is Grade.DECISION:
            self.facts.used_fields |= value.fields
            return True
        builds = self.constructor is not None and self.constructor.builds_inside(whole)
        if value.grade is Grade.SWITCH or builds:
            if reads_only_config(test, self.scope):
                self.facts.used_fields |= value.fields
                self.facts.assumptions.append(_assumption(test, value))
                return True
            if builds:
                refuse(
                    "SP306",
                    f"in `{self.kind.cls.__name__}`, `{tree.code(test)}` decides which child is built, and it reads a number "
                    "that the config does not hold",
                    span_of_class(self.method.owner),
                    help="write the test over fields of the config, or over an option (a boolean, a string, None)",
                )
        return False

    def _take(self, node: cst.If, holds: bool) -> Statements:
        if holds:
            comment = _header_comment(node.body)
            note = [] if comment is None else [cst.EmptyLine(comment=comment)]
            return _with_leading(self.block(tree.body_of(node)), [*node.leading_lines, *note])
        # Words above the `if` speak of its own branch: they go with it, blank lines stay.
        blank = [line for line in node.leading_lines if line.comment is None]
        if node.orelse is None:
            return []
        if isinstance(node.orelse, cst.If):
            other = node.orelse
            return self.statement(other.with_changes(leading_lines=[*blank, *other.leading_lines]))
        return _with_leading(self.block(tree.body_of(node.orelse)), [*blank, *node.orelse.leading_lines])

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
        iterated = self._loop_modules(node.iter)
        stored = tree.stored_names(node)
        self.scope.forget(stored)
        for name in stored:
            self.loops.pop(name, None)
        target: cst.BaseExpression = node.target
        over = node.iter
        if iterated is not None:
            if isinstance(over, cst.Call) and isinstance(target, cst.Tuple):
                target = target.elements[1].value
            if isinstance(target, cst.Name):
                self.loops[target.value] = iterated
            new_iter = node.iter
            self.leave(node.iter)
        else:
            new_iter = self.expression(node.iter)
        body = tree.with_body(node, self.block(tree.body_of(node))).body
        orelse = node.orelse
        if orelse is not None:
            orelse = tree.with_body(orelse, self.block(tree.body_of(orelse)))
        self.scope.forget(stored)
        for name in stored:
            self.loops.pop(name, None)
        return node.with_changes(iter=new_iter, body=body, orelse=orelse)

    def _loop_modules(self, node: cst.BaseExpression) -> list[nn.Module] | None:
        """The elements of `self.layers`, or of `enumerate(self.layers)`."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "enumerate" and node.args:
            node = node.args[0].value
        holders = self._modules(node) if isinstance(node, cst.Attribute) else None
        if holders is None or not all(isinstance(h, (nn.ModuleList, nn.Sequential)) for h in holders):
            return None
        return [child for holder in holders for child in holder.children()]

    def _opaque(self, node: Any) -> Any:
        """Loops, try and with: any of their statements may run any number of times."""
        stored = tree.stored_names(node)
        self.scope.forget(stored)

        def inside(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                new = child.with_changes(body=self.block(child.body) or [_PASS])
                self.scope.forget(stored)
                return new
            if isinstance(child, cst.BaseExpression):
                return self.expression(child)
            return tree.rebuild(child, inside)

        return tree.rebuild(node, inside)

    # ---------------------------------------------------------------- super().__init__

    def _super_init(self, node: cst.SimpleStatementLine) -> Statements | None:
        """The body of a written-out base's constructor in place of the call of it."""
        if self.constructor is None or len(node.body) != 1 or not isinstance(node.body[0], cst.Expr):
            return None
        call = node.body[0].value
        if not isinstance(call, cst.Call) or not is_super_init(call):
            return None
        position = self.flat.chain.index(self.method.owner)
        base = self.flat.init_of(self.flat.chain[position + 1]) if position + 1 < len(self.flat.chain) else None
        if base is None:
            return None  # the base is imported: its constructor is called on the page too
        inner = Folder(self.facts, self.kind, self.flat, base, self.constructor)
        inner.scope.names = {k: v for k, v in self.scope.names.items() if k.startswith("self.")}
        lines = self._bind_base(call, base, inner)
        lines += inner.block(_without_docstring(tree.body_of(base.node)))
        self.scope.names |= {k: v for k, v in inner.scope.names.items() if k.startswith("self.")}
        lines = _with_leading(lines, list(node.leading_lines))
        if lines and node.trailing_whitespace.comment is not None and isinstance(lines[0], cst.SimpleStatementLine):
            lines[0] = lines[0].with_changes(trailing_whitespace=node.trailing_whitespace)
        return lines

    def _bind_base(self, call: cst.Call, base: Method, inner: Folder) -> Statements:
        """Give the base's parameters their values; one that is not a name of its own becomes a local."""
        params = [p for p in tree.parameters(base.node)][1:]
        passed = _arguments_by_name(call, [p.name.value for p in params])
        if passed is None:
            refuse(
                "SP307",
                f"`{self.kind.cls.__name__}` calls its base's constructor with `*` or `**`, or with a parameter it has not",
                span_of_class(self.method.owner),
                help="pass each argument by its plain name",
            )
        lines: Statements = []
        used = set(tree.loaded_names(base.node.body))
        locals_here = tree.stored_names(self.method.node.body) | {p.name.value for p in tree.parameters(self.method.node)}
        clash = (tree.stored_names(base.node.body) & locals_here) - set(passed)
        if clash:
            refuse(
                "SP308",
                f"`{self.kind.cls.__name__}` and its base `{base.owner.__name__}` both have a local `{sorted(clash)[0]}` in `__init__`",
                span_of_class(self.method.owner),
                help="rename one of them",
            )
        for param in params:
            name = param.name.value
            expression = passed.get(name, param.default)
            if expression is None:
                continue
            inner.scope.names[name] = self._known(expression)
            if name not in used or (isinstance(expression, cst.Name) and expression.value == name):
                continue
            if name in locals_here:
                refuse(
                    "SP307",
                    f"`{self.kind.cls.__name__}` passes `{tree.code(expression)}` for `{name}` of its base "
                    f"`{base.owner.__name__}`, and has a `{name}` of its own",
                    span_of_class(self.method.owner),
                    help="pass the parameter of that name, or rename one of the two",
                )
            folded = self.expression(expression)
            line = cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], folded)])
            lines.append(line)
            self.facts.keep(folded)
        return lines

    # ---------------------------------------------------------------- expressions

    def expression(self, node: Any) -> Any:
        """The folded form of an expression (or of a part of one: an argument, an element)."""
        if isinstance(node, cst.BaseExpression):
            decided = self._decided(node)
            if decided is not None:
                return decided
        handler = _EXPRESSIONS.get(type(node))
        return handler(self, node) if handler is not None else tree.rebuild(node, self.expression)

    def _decided(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The literal that an expression comes to, where that is a decision."""
        if isinstance(node, (cst.SimpleString, cst.Integer, cst.Float)) or (
            isinstance(node, cst.Name) and node.value in ("None", "True", "False")
        ):
            return node
        if not isinstance(node, (cst.Name, cst.Attribute, cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Call, cst.Subscript)):
            return None
        try:
            value = evaluate(node, self.scope)
        except Unknown:
            return None
        if value.grade is not Grade.DECISION or not (value.object is None or isinstance(value.object, (bool, str))):
            return None
        self.facts.used_fields |= value.fields
        return self.facts.keep(tree.in_place_of(node, literal(value.object)))

    def _name(self, node: cst.Name) -> cst.BaseExpression:
        if self.constructor is not None:
            injected = self.constructor.injected(node, self.scope)
            if injected is not None:
                return injected
        self._escape(node)
        return node

    def _attribute_node(self, node: cst.Attribute) -> cst.BaseExpression:
        self._escape(node)
        new: cst.BaseExpression = self._without_escape(node)
        return new

    def _without_escape(self, node: Any) -> Any:
        """As `expression`, for a module that is only looked into or called."""
        if isinstance(node, cst.Attribute):
            new = node.with_changes(value=self._without_escape(node.value))
            new = node if new.value is node.value else new
            try:
                base = evaluate(node.value, self.scope).object
            except Unknown:
                return new
            if is_config(base):
                self.facts.read_config(new, base, node.attr.value)
            return new
        if isinstance(node, cst.Name):
            return node if self._modules(node) is not None or node.value == "self" else self.expression(node)
        return self.expression(node)

    def _escape(self, node: cst.BaseExpression) -> None:
        """A module handed on as a value: whoever gets it may call it with anything."""
        modules = self._modules(node)
        for module in modules or ():
            for kind in self.facts.children_kinds(module):
                self.facts.bindings[kind].escaped = True

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        """`a and b`, `a or b`: a known left side decides or disappears; a right side stays as a value."""
        try:
            left = truth(node.left, self.scope)
        except Unknown:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.NUMBER:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.SWITCH and not reads_only_config(node.left, self.scope):
            return tree.rebuild(node, self.expression)
        self.facts.used_fields |= left.fields
        if left.grade is Grade.SWITCH:
            self.facts.assumptions.append(_assumption(node.left, left))
        decides = bool(left.object) == isinstance(node.operator, cst.Or)
        kept = node.left if decides else node.right
        return self.facts.keep(tree.in_place_of(node, self.expression(kept)))

    def _conditional(self, node: cst.IfExp) -> cst.BaseExpression:
        try:
            test = truth(node.test, self.scope)
        except Unknown:
            return tree.rebuild(node, self.expression)
        if not self._may_fold(node, node.test, test):
            return tree.rebuild(node, self.expression)
        taken = self.expression(node.body if test.object else node.orelse)
        return self.facts.keep(tree.in_place_of(node, taken))

    def _call(self, node: cst.Call) -> cst.BaseExpression:
        if self.constructor is not None:
            made = self.constructor.build(node, self)
            if made is not None:
                return made
        modules = self._modules(node.func)
        if modules is not None and all(isinstance(m, IdentityOp) for m in modules) and len(node.args) == 1:
            return self.facts.keep(tree.in_place_of(node, self.expression(node.args[0].value)))
        func = self._without_escape(node.func) if isinstance(node.func, (cst.Attribute, cst.Name)) else self.expression(node.func)
        new = node.with_changes(func=func, args=[self._argument(a) for a in node.args])
        if modules is not None:
            self._note_call(new, node, modules)
        return node if _same(new, node) else new

    def _argument(self, node: cst.Arg) -> cst.Arg:
        value = self.expression(node.value)
        return node if value is node.value else node.with_changes(value=tree.bare(value))

    def _note_call(self, new: cst.Call, node: cst.Call, modules: list[nn.Module]) -> None:
        """What this call passes to each parameter of the forwards that it may reach."""
        for kind in {k for m in modules for k in self.facts.children_kinds(m)}:
            forward = self.facts.flat(kind).methods.get("forward")
            if forward is None:
                continue
            params = tree.parameters(forward.node)[1:]
            passed = _arguments_by_name(node, [p.name.value for p in params])
            if passed is None:
                self.facts.bindings[kind].escaped = True
                continue
            values: dict[str, Value | None] = {}
            for param in params:
                expression = passed.get(param.name.value, param.default)
                values[param.name.value] = None if expression is None else self._known(expression)
            self.facts.bindings[kind].join(values)

    def _comprehension(self, node: Any) -> Any:
        """The names that a comprehension binds are its own."""
        if self.constructor is not None:
            pattern = self.constructor.pattern(node, self)
            if pattern is not None:
                return pattern
        before = self.scope
        self.scope = before.copy()
        self.scope.forget(tree.stored_names(node))
        holders = self._loop_modules(node.for_in.iter)
        if holders is not None and isinstance(node.for_in.target, cst.Name):
            self.loops[node.for_in.target.value] = holders
            iterated = node.for_in.with_changes(ifs=[tree.rebuild(i, self.expression) for i in node.for_in.ifs])
        else:
            iterated = tree.rebuild(node.for_in, self.expression)
        changes: dict[str, Any] = {"for_in": iterated}
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                changes[name] = self.expression(getattr(node, name))
        self.scope = before
        new = node.with_changes(**changes)
        return new

    def _named(self, node: cst.NamedExpr) -> cst.NamedExpr:
        new = tree.rebuild(node, lambda child: child if child is node.target else self.expression(child))
        self.scope.forget(tree.stored_names(node))
        return new

    def leave(self, node: Any) -> Any:
        """Text that stays whole (an f-string, a lambda): what it reads of configs and modules still counts."""
        for item in tree.walk(node):
            if isinstance(item, cst.Attribute):
                try:
                    base = evaluate(item.value, self.scope).object
                except Unknown:
                    base = None
                if is_config(base):
                    self.facts.read_config(item, base, item.attr.value)
                if not isinstance(node, (cst.Attribute, cst.Call)):
                    self._escape(item)
        return node


def _literal_node(folder: Folder, node: Any) -> Any:
    return node


_EXPRESSIONS: dict[type[cst.CSTNode], Any] = {
    cst.Name: Folder._name,
    cst.Attribute: Folder._attribute_node,
    cst.BooleanOperation: Folder._boolean,
    cst.IfExp: Folder._conditional,
    cst.Call: Folder._call,
    cst.Arg: Folder._argument,
    cst.ListComp: Folder._comprehension,
    cst.SetComp: Folder._comprehension,
    cst.DictComp: Folder._comprehension,
    cst.GeneratorExp: Folder._comprehension,
    cst.NamedExpr: Folder._named,
    cst.Lambda: Folder.leave,
    cst.FormattedString: Folder.leave,
    cst.Annotation: _literal_node,
}

_PASS = cst.SimpleStatementLine(body=[cst.Pass()])


def _assumption(test: cst.BaseExpression, value: Value) -> Any:
    from .facts import Assumption

    return Assumption(test, bool(value.object), value.fields)


def _module_of(owner: type) -> Any:
    import sys

    return sys.modules[owner.__module__]


def _same(new: cst.CSTNode, old: cst.CSTNode) -> bool:
    """Whether two nodes hold the same children, object by object."""
    return all(a is b for a, b in zip(tree.parts(new), tree.parts(old), strict=False)) and len(
        list(tree.parts(new))
    ) == len(list(tree.parts(old)))


def _arguments_by_name(call: cst.Call, names: list[str]) -> dict[str, cst.BaseExpression] | None:
    """A call's arguments by the names of the parameters; None where that can't be said."""
    found: dict[str, cst.BaseExpression] = {}
    for position, arg in enumerate(call.args):
        if arg.star or (arg.keyword is None and position >= len(names)):
            return None
        name = arg.keyword.value if arg.keyword is not None else names[position]
        if name not in names:
            return None
        found[name] = arg.value
    return found


def is_super_init(call: cst.Call) -> bool:
    func = call.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value == "__init__"
        and isinstance(func.value, cst.Call)
        and isinstance(func.value.func, cst.Name)
        and func.value.func.value == "super"
    )


def _without_docstring(statements: Sequence[Any]) -> list[Any]:
    return list(statements[1:] if tree.docstring_of(statements) is not None else statements)


def _header_comment(suite: cst.BaseSuite) -> cst.Comment | None:
    return suite.header.comment if isinstance(suite, cst.IndentedBlock) else None


def _with_leading(statements: Statements, lines: list[cst.EmptyLine]) -> Statements:
    """The lines above a folded statement, above what is left of it."""
    if not statements or not lines:
        return statements
    first = statements[0]
    if not hasattr(first, "leading_lines"):
        return statements
    return [first.with_changes(leading_lines=[*lines, *first.leading_lines]), *statements[1:]]


def _leaves(statement: Any) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], (cst.Return, cst.Raise))


def _leaves_any(node: cst.If) -> bool:
    statements = tree.body_of(node)
    return bool(statements) and _leaves(statements[-1])


def _returns_something(func: cst.BaseExpression, scope: Scope) -> bool:
    """Whether a call of this never returns None: a class, or a function whose annotation says so."""
    try:
        if isinstance(func, cst.Attribute):
            base = evaluate(func.value, scope).object
            callee = getattr(base, func.attr.value, None) if isinstance(base, type) else evaluate(func, scope).object
        else:
            callee = evaluate(func, scope).object
    except Unknown:
        return False
    if isinstance(callee, type):
        return True
    returns = getattr(callee, "__annotations__", {}).get("return")
    text = returns if isinstance(returns, str) else getattr(returns, "__name__", str(returns))
    return returns is not None and "None" not in text and "Optional" not in text and text != "Any"
