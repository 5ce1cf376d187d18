"""Fold: one method's text with every decision taken, everything else as its author wrote it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst
from torch import nn

from specc.templates import IdentityOp
from specc.templates.diagnostic import Span

from . import tree
from .assumptions import assumption
from .comments import fold_comments, fold_docstring
from .construct import IDENTITY, Constructor
from .errors import refuse, span_of_class
from .exposure import ADDING
from .facts import CONTAINERS, Facts, elements, join
from .flatten import Flat, Method
from .kinds import Kind
from .value import (
    NOT_NONE,
    Grade,
    Scope,
    Unknown,
    Value,
    common,
    evaluate,
    is_config,
    is_field_or_property,
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
        self.past_loops: dict[str, list[nn.Module]] = {}  # and what such a name may still be
        self.outer: frozenset[str] = frozenset()  # locals of the constructors that this one is spliced into
        self.owned: set[int] = set()  # expressions whose module goes straight to an attribute

    # ---------------------------------------------------------------- facts

    def _attribute(self, name: str) -> Value:
        if self.constructor is not None or not self.facts.is_stable(self.flat, name):
            raise Unknown
        return self.facts.attribute(self.kind, name)

    def span(self, node: cst.CSTNode) -> Span | None:
        """The line of a node of this method, for a diagnostic."""
        return self.facts.sources.span(node, self.method.owner, *self.flat.chain) or span_of_class(self.kind.cls)

    def _modules(self, node: cst.BaseExpression) -> list[nn.Module] | None:
        """The modules, over all instances, that a chain like `self.a.b` or a loop variable stands for."""
        if isinstance(node, cst.Name):
            return self.loops.get(node.value)
        if isinstance(node, cst.Subscript):
            return elements(self._modules(node.value) or (), node)
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
        self._forget_stores(node)
        self.leave(node)
        return [node]

    def _forget_stores(self, node: cst.CSTNode) -> set[str]:
        """Nothing is known any more of what the code under a node stores; returns its names."""
        stored = tree.stored_names(node)
        self.scope.forget(stored)
        self.scope.forget({f"self.{a.attr.value}" for a in tree.stored_attributes(node) if tree.self_attribute(a)})
        for name in stored:
            self._end_loop(name)
        return stored

    def _end_loop(self, name: str) -> None:
        if name in self.loops:
            self.past_loops.setdefault(name, []).extend(self.loops.pop(name))

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
            self._own(node.value, [t.target for t in node.targets])
            new = node.with_changes(value=self.expression(node.value), targets=[self._target(t) for t in node.targets])
            for target in node.targets:
                self._bind(target.target, value)
            if isinstance(new.value, cst.Name) and new.value.value == IDENTITY:
                return None  # a layer that is not there
            return node if _same(new, node) else new
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
                self.facts.used_fields |= known.fields
                return None
            return tree.rebuild(node, self.expression)
        if isinstance(node, (cst.Del, cst.Import, cst.ImportFrom)):
            self._forget_stores(node)
            return node
        if isinstance(node, cst.Expr):
            self._own_added(node.value)
        return tree.rebuild(node, self.expression)

    # ---------------------------------------------------------------- where modules go

    def _own(self, value: cst.BaseExpression, targets: list[cst.BaseExpression]) -> None:
        """Note the children in a value that goes straight to attributes of `self`.

        Whatever else a child is bound to is another name to call it by, which nobody follows.
        """
        if self.constructor is not None and all(_is_of_self(t) for t in targets):
            self._own_parts(value)

    def _own_added(self, node: cst.BaseExpression) -> None:
        """`self.layers.append(child)` owns it too."""
        if self.constructor is not None and isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value in ADDING and _is_of_self(node.func.value):
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
        return any(callee is c for c in (nn.ModuleList, nn.Sequential, nn.ModuleDict, list, dict, tuple, OrderedDict))

    def note_built(self, node: cst.BaseExpression, modules: Iterable[nn.Module]) -> None:
        """A child was built, or handed in, by this expression: has it names that nobody follows?"""
        if id(node) not in self.owned:
            for module in modules:
                self.facts.escape(module)

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
            self._end_loop(target.value)
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
            pass
        if isinstance(node, cst.IfExp):
            try:
                return self._known(node.body if truth(node.test, self.scope).object else node.orelse)
            except Unknown:
                pass
        if isinstance(node, cst.Call) and self.constructor is not None:
            modules: list[Any] = [b.module for b in self.facts.built_at(node, self.kind)]
            if modules:
                try:
                    return Value(common(modules))
                except Unknown:
                    return Value(NOT_NONE)
        return Value(NOT_NONE) if self._never_none(node) else None

    def known(self, node: cst.BaseExpression) -> Value | None:
        """What is known of an expression here."""
        return self._known(node)

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
            if self._assume(test, value):
                return True
            if builds:
                refuse(
                    "SP306",
                    f"in `{self.kind.cls.__name__}`, `{tree.code(test)}` decides which child is built, and it reads a number "
                    "that the config does not hold",
                    self.span(test),
                    help="write the test over fields of the config, or over an option (a boolean, a string, None)",
                )
        return False

    def _assume(self, test: cst.BaseExpression, value: Value) -> bool:
        """Make the answer of a test of numbers an assumption of the page, where its Config can assert it."""
        assumed = assumption(test, value, self.scope) if reads_only_config(test, self.scope) else None
        if assumed is None:
            return False
        self.facts.used_fields |= value.fields
        self.facts.assumptions.append(assumed)
        return True

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
        iterated = self._loop_modules(node.iter, node.target)
        new_iter = node.iter if iterated is not None else self.expression(node.iter)
        self._forget_stores(node)
        if iterated is not None:
            self.loops[_module_target(node.target)] = iterated
        body = tree.with_body(node, self.block(tree.body_of(node))).body
        orelse = node.orelse
        if orelse is not None:
            orelse = tree.with_body(orelse, self.block(tree.body_of(orelse)))
        self._forget_stores(node)
        return node.with_changes(iter=new_iter, body=body, orelse=orelse)

    def _loop_modules(
        self, node: cst.BaseExpression, target: cst.BaseAssignTargetExpression
    ) -> list[nn.Module] | None:
        """The elements of `self.layers`, or of `enumerate(self.layers)`, where the target names them."""
        if not _module_target(target):
            return None
        counted = isinstance(node, cst.Call) and tree.dotted(node.func) == "enumerate" and bool(node.args)
        if counted is not isinstance(target, cst.Tuple):
            return None
        if counted and isinstance(node, cst.Call):
            node = node.args[0].value
        holders = self._modules(node) if isinstance(node, cst.Attribute) else None
        if holders is None or not all(isinstance(h, (nn.ModuleList, nn.Sequential)) for h in holders):
            return None
        return [child for holder in holders for child in holder.children()]

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
        inner.outer = self.outer | self._locals()
        inner.scope.names = {k: v for k, v in self.scope.names.items() if k.startswith("self.")}
        inner.scope.names["self"] = None
        lines = self._bind_base(call, base, inner)
        lines += self._without_return(inner.block(_without_docstring(tree.body_of(base.node))), base)
        self.scope.names |= {k: v for k, v in inner.scope.names.items() if k.startswith("self.")}
        lines = _with_leading(lines, list(node.leading_lines))
        if lines and node.trailing_whitespace.comment is not None and isinstance(lines[0], cst.SimpleStatementLine):
            lines[0] = lines[0].with_changes(trailing_whitespace=node.trailing_whitespace)
        return lines

    def _locals(self) -> frozenset[str]:
        names = {p.name.value for p in tree.every_parameter(self.method.node)}
        return frozenset(tree.stored_names(self.method.node.body) | names)

    def _without_return(self, lines: Statements, base: Method) -> Statements:
        """A base's constructor that ends early would end the one that it is spliced into."""
        if lines and isinstance(lines[-1], cst.SimpleStatementLine) and isinstance(lines[-1].body[-1], cst.Return):
            last = lines[-1].body[:-1]
            lines = [*lines[:-1], *([lines[-1].with_changes(body=last)] if last else [])]
        for line in lines:
            for item in tree.own(line):
                if isinstance(item, cst.Return):
                    refuse(
                        "SP324",
                        f"the constructor of `{base.owner.__name__}`, a base of `{self.kind.cls.__name__}`, returns early",
                        self.facts.sources.span(item, base.owner),
                        help="put the rest of it under an `if`",
                    )
        return lines

    def _bind_base(self, call: cst.Call, base: Method, inner: Folder) -> Statements:
        """Give the base's parameters their values; one that is not a name of its own becomes a local."""
        params = [p for p in tree.parameters(base.node)][1:]
        passed = _arguments_by_name(call, [p.name.value for p in params])
        if passed is None:
            refuse(
                "SP307",
                f"`{self.kind.cls.__name__}` calls its base's constructor with `*` or `**`, or with a parameter it has not",
                self.span(call),
                help="pass each argument by its plain name",
            )
        lines: Statements = []
        used = set(tree.loaded_names(base.node.body))
        stored = tree.stored_names(base.node.body)
        locals_here = self._locals() | self.outer
        same = {n for n, e in passed.items() if isinstance(e, cst.Name) and e.value == n}
        # A parameter that both call by one name is one local on the page: the base must leave it alone.
        clash = (stored & locals_here) - set(passed) | {n for n in stored & same if self._reads_beside(n, call)}
        if clash:
            refuse(
                "SP308",
                f"`{self.kind.cls.__name__}` and its base `{base.owner.__name__}` both have a local `{sorted(clash)[0]}` in `__init__`",
                self.span(call),
                help="rename one of them",
            )
        defaults = {p.name.value: p.default for p in params if p.default is not None and p.name.value not in passed}
        for name, expression in [*passed.items(), *defaults.items()]:
            given = name in passed
            known = self._known(expression) if given else self.facts.default(expression, base.owner)
            inner.scope.names[name] = known
            if name in same:
                continue
            if name not in used and tree.is_pure(expression):
                continue
            if name in locals_here:
                refuse(
                    "SP307",
                    f"`{self.kind.cls.__name__}` passes `{tree.code(expression)}` for `{name}` of its base "
                    f"`{base.owner.__name__}`, and has a `{name}` of its own",
                    self.span(call),
                    help="pass the parameter of that name, or rename one of the two",
                )
            folded = (self if given else inner).expression(expression)
            line = cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], folded)])
            lines.append(line)
            self.facts.keep(folded)
        return lines

    def _reads_beside(self, name: str, call: cst.Call) -> bool:
        """Whether the constructor reads a name anywhere but in this call of its base's."""
        inside = sum(1 for n in tree.loaded_names(call) if n == name)
        return sum(1 for n in tree.loaded_names(self.method.node.body) if n == name) > inside or name in self.outer

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
        if value.grade is not Grade.DECISION or not (value.object is None or type(value.object) in (bool, str)):
            return None
        self.facts.used_fields |= value.fields
        return self.facts.keep(tree.in_place_of(node, literal(value.object)))

    def _name(self, node: cst.Name) -> cst.BaseExpression:
        if self.constructor is not None:
            injected = self.constructor.injected(node, self)
            if injected is not None:
                return injected
        self._escape(node)
        self._note_config_value(node)
        return node

    def _attribute_node(self, node: cst.Attribute) -> cst.BaseExpression:
        self._escape(node)
        new: cst.BaseExpression = self._without_escape(node)
        self._note_config_value(node, new)
        return new

    def _without_escape(self, node: Any) -> Any:
        """As `expression`, for a module that is only looked into or called, or a config that is read."""
        if isinstance(node, cst.Attribute):
            self._escape_by_method(node)
            new = node.with_changes(value=self._without_escape(node.value))
            new = node if new.value is node.value else new
            self._read_config(node, new)
            return new
        if isinstance(node, cst.Name):
            if node.value in self.past_loops:
                self._escape(node)
            looked_into = self._modules(node) is not None or node.value == "self" or self._config_value(node) is not None
            return node if looked_into else self.expression(node)
        return self.expression(node)

    def _escape(self, node: cst.CSTNode) -> None:
        """A module handed on as a value: whoever gets it may call it with anything."""
        if isinstance(node, (cst.Name, cst.Attribute)):
            past = self.past_loops.get(node.value, []) if isinstance(node, cst.Name) else []
            for module in [*(self._modules(node) or ()), *past]:
                self.facts.escape(module)

    def _escape_by_method(self, node: cst.Attribute) -> None:
        """`self.child.forward`, `self.heads.items`: a method of torch's that reaches what is inside."""
        for module in self._modules(node.value) or ():
            name = node.attr.value
            if name in ADDING or name in module.__dict__ or name in module._modules:
                continue
            if name in ("forward", "__call__") or hasattr(nn.Module, name) or not hasattr(module, name):
                self.facts.escape(module)
            elif isinstance(module, CONTAINERS):
                self.facts.escape(module)

    # ---------------------------------------------------------------- the config

    def _config_value(self, node: cst.CSTNode) -> Any:
        """The config that an expression is, else None."""
        if not isinstance(node, (cst.Name, cst.Attribute)):
            return None
        try:
            value = evaluate(node, self.scope).object
        except Unknown:
            return None
        return value if is_config(value) else None

    def _read_config(self, node: cst.Attribute, new: cst.Attribute) -> None:
        config = self._config_value(node.value)
        if config is None:
            return
        if not is_field_or_property(config, node.attr.value):
            refuse(
                "SP202",
                f"`{tree.code(node)}` is no field and no property of `{type(config).__name__}`, and the page's Config "
                "has nothing else",
                self.span(node),
                help="make it a field or a property",
            )
        self.facts.read_config(new, config, node.attr.value)

    def _note_config_value(self, node: cst.CSTNode, new: cst.CSTNode | None = None) -> None:
        """Remember where a whole config is a value: what is read of it there is not seen."""
        config = self._config_value(node)
        if config is not None:
            self.facts.config_values[id(new or node)] = (new or node, self.method.owner)

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        """`a and b`, `a or b`: a known left side decides or disappears; a right side stays as a value."""
        try:
            left = truth(node.left, self.scope)
        except Unknown:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.NUMBER:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.SWITCH and not self._assume(node.left, left):
            return tree.rebuild(node, self.expression)
        self.facts.used_fields |= left.fields
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
        if isinstance(node.func, cst.Subscript) and modules is not None:  # layers[i](x)
            base = self._without_escape(node.func.value)
            func: Any = node.func.with_changes(value=base, slice=[self.expression(e) for e in node.func.slice])
            func = node.func if _same(func, node.func) else func
        elif isinstance(node.func, (cst.Attribute, cst.Name)):
            func = self._without_escape(node.func)
        else:
            func = self.expression(node.func)
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
            for position, param in enumerate(params):
                name = param.name.value
                if name in passed:
                    # Of a Sequential only the first is called with what is passed here.
                    direct = all(self.facts.kinds.of(m) is not None for m in modules)
                    values[name] = self._known(passed[name]) if direct or position else None
                else:
                    owner = self.facts.flat(kind).methods["forward"].owner
                    values[name] = None if param.default is None else self.facts.default(param.default, owner)
            self.facts.bindings[kind].join(values)

    def _comprehension(self, node: Any) -> Any:
        """The names that a comprehension binds are its own."""
        if self.constructor is not None:
            pattern = self.constructor.pattern(node, self)
            if pattern is not None:
                return pattern
        before, loops = self.scope, dict(self.loops)
        self.scope = before.copy()
        self._forget_stores(node)
        holders = self._loop_modules(node.for_in.iter, node.for_in.target)
        if holders is not None:
            self.loops[_module_target(node.for_in.target)] = holders
            iterated = node.for_in.with_changes(ifs=[tree.rebuild(i, self.expression) for i in node.for_in.ifs])
        else:
            iterated = tree.rebuild(node.for_in, self.expression)
        changes: dict[str, Any] = {"for_in": iterated}
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                changes[name] = self.expression(getattr(node, name))
        self.scope, self.loops = before, loops
        for item in tree.walk(node):
            if isinstance(item, cst.NamedExpr):  # it binds a name of the function, not of the comprehension
                self._bind(item.target, None)
        new = node.with_changes(**changes)
        return new

    def _named(self, node: cst.NamedExpr) -> cst.NamedExpr:
        new = tree.rebuild(node, lambda child: child if child is node.target else self.expression(child))
        self._forget_stores(node)
        return new

    def leave(self, node: Any) -> Any:
        """Text that stays whole (an f-string, a lambda): what it reads of configs and modules still counts."""
        looked_into: set[int] = set()
        for item in tree.walk(node):
            if isinstance(item, cst.Attribute):
                looked_into.add(id(item.value))
                self._escape_by_method(item)
                self._read_config(item, item)
            if isinstance(item, (cst.Attribute, cst.Name)):
                self._escape(item)
                if id(item) not in looked_into:
                    self._note_config_value(item)
            if isinstance(item, cst.Call) and self.constructor is not None:
                self.constructor.refuse_left(item, self)
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


def _module_target(target: cst.BaseExpression) -> str:
    """The name that runs over modules in `for x in ...` and `for i, x in enumerate(...)`; "" for others."""
    if isinstance(target, cst.Tuple):
        pair = [e.value for e in target.elements]
        target = pair[1] if len(pair) == 2 else target
    return target.value if isinstance(target, cst.Name) else ""


def _is_of_self(node: cst.CSTNode) -> bool:
    """`self.a`, `self.a.b`, `self.a["b"]`: something of `self`'s."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        if tree.self_attribute(node) is not None:
            return True
        node = node.value
    return False


def _module_of(owner: type) -> Any:
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
