"""Expressions: the folded form of each, by what is known where it stands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import libcst as cst
from torch import nn

from specc.templates import IdentityOp
from specc.templates.diagnostic import Span

from . import tree
from .assumptions import assumption
from .construct import Constructor
from .errors import refuse, span_of_class
from .exposure import ADDING
from .facts import CONTAINERS, Facts, elements
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


class ExpressionFolder:
    """What is known at one place of a method, and the folded form of an expression there."""

    def __init__(
        self, facts: Facts, kind: Kind, flat: Flat, method: Method, constructor: Constructor | None
    ) -> None:
        self.facts, self.kind, self.flat, self.method = facts, kind, flat, method
        self.constructor = constructor  # set while folding `__init__`
        self.scope = Scope(vars(_module_of(method.owner)), attributes=self._attribute)
        self.loops: dict[str, list[nn.Module]] = {}  # loop variables over lists of modules
        self.past_loops: dict[str, list[nn.Module]] = {}  # and what such a name may still be
        self.outer: frozenset[str] = (
            frozenset()
        )  # locals of the constructors that this one is spliced into
        self.owned: set[int] = set()  # expressions whose module goes straight to an attribute

    def _attribute(self, name: str) -> Value:
        if self.constructor is not None or not self.facts.is_stable(self.flat, name):
            raise Unknown
        return self.facts.attribute(self.kind, name)

    def span(self, node: cst.CSTNode) -> Span | None:
        """The line of a node of this method, for a diagnostic."""
        return self.facts.sources.span(node, self.method.owner, *self.flat.chain) or span_of_class(
            self.kind.cls
        )

    def _modules(self, node: cst.BaseExpression) -> list[nn.Module] | None:
        """The modules, over all instances, that a chain like `self.a.b` or a loop variable stands
        for.
        """
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

    def _known(self, node: cst.BaseExpression) -> Value | None:
        """The value of an expression about to be bound to a name, or NOT_NONE, or nothing."""
        try:
            return evaluate(node, self.scope)
        except Unknown:
            pass
        if isinstance(node, cst.IfExp):
            try:
                return self._known(
                    node.body if truth(node.test, self.scope).object else node.orelse
                )
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
        if isinstance(
            node,
            (cst.BinaryOperation, cst.Tuple, cst.List, cst.Dict, cst.ListComp, cst.FormattedString),
        ):
            return True
        if isinstance(node, cst.Call):
            return _returns_something(node.func, self.scope)
        return False

    def _may_fold(self, whole: cst.CSTNode, test: cst.BaseExpression, value: Value) -> bool:
        """Whether the page may lose this test. One that reads numbers becomes an assumption of the
        page.
        """
        if value.grade is Grade.DECISION:
            self.facts.decide(test, value, self.kind)
            return True
        builds = self.constructor is not None and self.constructor.builds_inside(whole)
        if value.grade is Grade.SWITCH or builds:
            if self._assume(test, value):
                return True
            if builds:
                refuse(
                    "SP306",
                    f"in `{self.kind.cls.__name__}`, `{tree.code(test)}` decides which child is "
                    "built, and it reads a number "
                    "that the config does not hold",
                    self.span(test),
                    help=(
                        "write the test over fields of the config, or over an option (a boolean, "
                        "a string, None)"
                    ),
                )
        return False

    def _assume(self, test: cst.BaseExpression, value: Value) -> bool:
        """Make the answer of a test of numbers an assumption of the page, where its Config can
        assert it.
        """
        assumed = (
            assumption(test, value, self.scope) if reads_only_config(test, self.scope) else None
        )
        if assumed is None:
            return False
        self.facts.decide(test, value, self.kind)
        self.facts.assumptions.append(assumed)
        return True

    def _loop_modules(
        self, node: cst.BaseExpression, target: cst.BaseAssignTargetExpression
    ) -> list[nn.Module] | None:
        """The elements of `self.layers`, or of `enumerate(self.layers)`, where the target names
        them.
        """
        if not module_target(target):
            return None
        counted = (
            isinstance(node, cst.Call) and tree.dotted(node.func) == "enumerate" and bool(node.args)
        )
        if counted is not isinstance(target, cst.Tuple):
            return None
        if counted and isinstance(node, cst.Call):
            node = node.args[0].value
        holders = self._modules(node) if isinstance(node, cst.Attribute) else None
        if holders is None or not all(
            isinstance(h, (nn.ModuleList, nn.Sequential)) for h in holders
        ):
            return None
        return [child for holder in holders for child in holder.children()]

    def _forget_stores(self, node: cst.CSTNode) -> set[str]:
        """Nothing is known any more of what the code under a node stores; returns its names."""
        stored = tree.stored_names(node)
        self.scope.forget(stored)
        self.scope.forget(
            {f"self.{a.attr.value}" for a in tree.stored_attributes(node) if tree.self_attribute(a)}
        )
        for name in stored:
            self._end_loop(name)
        return stored

    def _end_loop(self, name: str) -> None:
        if name in self.loops:
            self.past_loops.setdefault(name, []).extend(self.loops.pop(name))

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

    def note_built(self, node: cst.BaseExpression, modules: Iterable[nn.Module]) -> None:
        """A child was built, or handed in, by this expression: has it names that nobody follows?"""
        if id(node) not in self.owned:
            for module in modules:
                self.facts.escape(module)

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
        if not isinstance(
            node,
            (
                cst.Name,
                cst.Attribute,
                cst.Comparison,
                cst.BooleanOperation,
                cst.UnaryOperation,
                cst.Call,
                cst.Subscript,
            ),
        ):
            return None
        try:
            value = evaluate(node, self.scope)
        except Unknown:
            return None
        if value.grade is not Grade.DECISION or not (
            value.object is None or type(value.object) in (bool, str)
        ):
            return None
        self.facts.decide(node, value, self.kind)
        new = self.facts.keep(tree.in_place_of(node, literal(value.object)))
        self.facts.origins[id(new)] = node
        return new

    def _name(self, node: cst.Name) -> cst.BaseExpression:
        if self.constructor is not None:
            injected = self.constructor.injected(node, self)
            if injected is not None:
                return injected
        self._escape(node)
        self._note_config_value(node)
        return node

    def as_it_stands(self, node: cst.Attribute) -> cst.BaseExpression:
        """A field of the config that the page reads, though its value is known."""
        return self._attribute_node(node)

    def _attribute_node(self, node: cst.Attribute) -> cst.BaseExpression:
        self._escape(node)
        new: cst.BaseExpression = self._without_escape(node)
        self._note_config_value(node, new)
        return new

    def _without_escape(self, node: Any) -> Any:
        """As `expression`, for a module that is only looked into or called, or a config that is
        read.
        """
        if isinstance(node, cst.Attribute):
            self._escape_by_method(node)
            new = node.with_changes(value=self._without_escape(node.value))
            new = node if new.value is node.value else new
            self._read_config(node, new)
            return new
        if isinstance(node, cst.Name):
            if node.value in self.past_loops:
                self._escape(node)
            looked_into = (
                self._modules(node) is not None
                or node.value == "self"
                or self._config_value(node) is not None
            )
            return node if looked_into else self.expression(node)
        return self.expression(node)

    def _escape(self, node: cst.CSTNode) -> None:
        """A module handed on as a value: whoever gets it may call it with anything."""
        if isinstance(node, (cst.Name, cst.Attribute)):
            past = self.past_loops.get(node.value, []) if isinstance(node, cst.Name) else []
            for module in [*(self._modules(node) or ()), *past]:
                self.facts.escape(module)

    def _escape_by_method(self, node: cst.Attribute) -> None:
        """`self.child.forward`, `self.heads.items`: a method of torch's that reaches what is
        inside.
        """
        for module in self._modules(node.value) or ():
            name = node.attr.value
            if name in ADDING or name in module.__dict__ or name in module._modules:
                continue
            if (
                name in ("forward", "__call__")
                or hasattr(nn.Module, name)
                or not hasattr(module, name)
            ) or isinstance(module, CONTAINERS):
                self.facts.escape(module)

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
            self.refuse_read(node, config)
        self.facts.read_config(new, config, node.attr.value)

    def refuse_read(self, node: cst.Attribute, config: Any) -> NoReturn:
        refuse(
            "SP202",
            f"`{tree.code(node)}` is no field and no property of `{type(config).__name__}`, and "
            "the "
            "page's Config has nothing else",
            self.span(node),
            help="make it a field or a property",
        )

    def _note_config_value(self, node: cst.CSTNode, new: cst.CSTNode | None = None) -> None:
        """Remember where a whole config is a value: what is read of it there is not seen."""
        config = self._config_value(node)
        if config is not None:
            self.facts.config_values[id(new or node)] = (new or node, self.method.owner)

    def _boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        """`a and b`, `a or b`: a known left side decides or disappears; a right side stays as a
        value.
        """
        try:
            left = truth(node.left, self.scope)
        except Unknown:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.NUMBER:
            return tree.rebuild(node, self.expression)
        if left.grade is Grade.SWITCH and not self._assume(node.left, left):
            return tree.rebuild(node, self.expression)
        if left.grade is not Grade.SWITCH:  # which was noted with the assumption
            self.facts.decide(node.left, left, self.kind)
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
        if (
            modules is not None
            and all(isinstance(m, IdentityOp) for m in modules)
            and len(node.args) == 1
        ):
            self.facts.decide(node.func, Value(IdentityOp), self.kind)
            return self.facts.keep(tree.in_place_of(node, self.expression(node.args[0].value)))
        if isinstance(node.func, cst.Subscript) and modules is not None:  # layers[i](x)
            base = self._without_escape(node.func.value)
            func: Any = node.func.with_changes(
                value=base, slice=[self.expression(e) for e in node.func.slice]
            )
            func = node.func if tree.same_parts(func, node.func) else func
        elif isinstance(node.func, (cst.Attribute, cst.Name)):
            func = self._without_escape(node.func)
        else:
            func = self.expression(node.func)
        new = node.with_changes(func=func, args=[self._argument(a) for a in node.args])
        if modules is not None:
            self._note_call(new, node, modules)
        return node if tree.same_parts(new, node) else new

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
            passed = tree.arguments_by_name(node, [p.name.value for p in params])
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
                    values[name] = (
                        None if param.default is None else self.facts.default(param.default, owner)
                    )
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
            self.loops[module_target(node.for_in.target)] = holders
            iterated = node.for_in.with_changes(
                ifs=[tree.rebuild(i, self.expression) for i in node.for_in.ifs]
            )
        else:
            iterated = tree.rebuild(node.for_in, self.expression)
        changes: dict[str, Any] = {"for_in": iterated}
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                changes[name] = self.expression(getattr(node, name))
        self.scope, self.loops = before, loops
        for item in tree.walk(node):
            if isinstance(
                item, cst.NamedExpr
            ):  # it binds a name of the function, not of the comprehension
                self._bind(item.target, None)
        new = node.with_changes(**changes)
        return new

    def _named(self, node: cst.NamedExpr) -> cst.NamedExpr:
        new = tree.rebuild(
            node, lambda child: child if child is node.target else self.expression(child)
        )
        self._forget_stores(node)
        return new

    def leave(self, node: Any) -> Any:
        """Text that stays whole (an f-string, a lambda): what it reads of configs and modules still
        counts.
        """
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


def _literal_node(folder: ExpressionFolder, node: Any) -> Any:
    return node


def module_target(target: cst.BaseExpression) -> str:
    """The name that runs over modules in `for x in ...` and `for i, x in enumerate(...)`; "" for
    others.
    """
    if isinstance(target, cst.Tuple):
        pair = [e.value for e in target.elements]
        target = pair[1] if len(pair) == 2 else target
    return target.value if isinstance(target, cst.Name) else ""


def _module_of(owner: type) -> Any:
    return sys.modules[owner.__module__]


def _returns_something(func: cst.BaseExpression, scope: Scope) -> bool:
    """Whether a call of this never returns None: a class, or an annotation that says so."""
    try:
        if isinstance(func, cst.Attribute):
            base = evaluate(func.value, scope).object
            callee = (
                getattr(base, func.attr.value, None)
                if isinstance(base, type)
                else evaluate(func, scope).object
            )
        else:
            callee = evaluate(func, scope).object
    except Unknown:
        return False
    if isinstance(callee, type):
        return True
    returns = getattr(callee, "__annotations__", {}).get("return")
    text = returns if isinstance(returns, str) else getattr(returns, "__name__", str(returns))
    return returns is not None and "None" not in text and "Optional" not in text and text != "Any"


_EXPRESSIONS: dict[type[cst.CSTNode], Any] = {
    cst.Name: ExpressionFolder._name,
    cst.Attribute: ExpressionFolder._attribute_node,
    cst.BooleanOperation: ExpressionFolder._boolean,
    cst.IfExp: ExpressionFolder._conditional,
    cst.Call: ExpressionFolder._call,
    cst.Arg: ExpressionFolder._argument,
    cst.ListComp: ExpressionFolder._comprehension,
    cst.SetComp: ExpressionFolder._comprehension,
    cst.DictComp: ExpressionFolder._comprehension,
    cst.GeneratorExp: ExpressionFolder._comprehension,
    cst.NamedExpr: ExpressionFolder._named,
    cst.Lambda: ExpressionFolder.leave,
    cst.FormattedString: ExpressionFolder.leave,
    cst.Annotation: _literal_node,
}
