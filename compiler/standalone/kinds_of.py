"""What kind of thing an expression is, as annotations and constructors say.

A kind is a set of alternatives: names of classes, "None", and

    type:X       the class X itself        each:X   a list of such modules or classes
    function:f   the function f itself     value:X  a dict with such values
    some         something, and not None
    ?            anything
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from specc.runtime import Axis, Mesh

from .. import tree
from .bound_names import (
    SELF,
    SOME,
    UNKNOWN,
    Each,
    Kind,
    Said,
    Unpacked,
    bound_in,
    elements_of,
    stored_in,
)
from .program import Program, is_property

NONE: Kind = frozenset({"None"})
MESH: Kind = frozenset({"Mesh"})
AXIS: Kind = frozenset({"Axis"})
_LISTS = ("nn.ModuleList", "nn.Sequential", "list", "tuple")
_TENSORS = frozenset({"Tensor", "torch.Tensor", "nn.Parameter"})
TENSOR: Kind = frozenset({"Tensor"})
_SINGLE = Mesh.single()


def never_none(kind: Kind) -> bool:
    return bool(kind) and not kind & {"None", "?", "Any", "object"}


class Environment(Mapping[str, Kind]):
    """The kinds of a function's parameters and locals, over all that is bound to each."""

    def __init__(self, kinds: Kinds, owner: str | None, function: cst.FunctionDef) -> None:
        self.kinds = kinds
        self._known: dict[str, Kind] = {}
        self._bound = bound_in(function)
        self._busy: set[str] = set()
        self._owner = owner

    def __getitem__(self, name: str) -> Kind:
        if name not in self._known:
            if name in self._busy:
                return frozenset()
            bound = self._bound[name]
            self._busy.add(name)
            found: Kind = frozenset().union(*(self._of(value) for value in bound))
            self._busy.discard(name)
            if self._busy:
                return found  # of a loop that is not closed yet
            self._known[name] = found
        return self._known[name]

    def _of(self, value: Any) -> Kind:
        if isinstance(value, frozenset):
            return frozenset({self._owner}) if value == SELF and self._owner else value
        if isinstance(value, Said):
            kind = self.kinds.annotation(value.annotation)
            return kind | NONE if value.or_none else kind
        if isinstance(value, Each):
            return self.kinds.elements(value.over, self)
        if isinstance(value, Unpacked):
            # A method of a tensor that is unpacked gives tensors, `split` or `unbind`.
            return TENSOR if self.kinds.of(value.call, self) == TENSOR else UNKNOWN
        return self.kinds.of(value, self)

    def __iter__(self) -> Any:
        return iter(self._bound)

    def __len__(self) -> int:
        return len(self._bound)

    def __contains__(self, name: object) -> bool:
        return name in self._bound


class Kinds:
    """The kinds of a program as it stands."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._attributes: dict[tuple[str, str], Kind] = {}
        self._environments: dict[int, tuple[Any, Environment]] = {}
        self._stores: dict[tuple[str, str], list[tuple[cst.FunctionDef, Any]]] = {}
        for owner, function in program.functions():
            if owner is not None:
                self._note_stores(owner, function)

    def environment(self, owner: str | None, function: cst.FunctionDef) -> Environment:
        if id(function) not in self._environments:
            self._environments[id(function)] = (function, Environment(self, owner, function))
        return self._environments[id(function)][1]

    # ---------------------------------------------------------------- annotations

    def annotation(self, node: cst.Annotation | cst.BaseExpression | None) -> Kind:
        if node is None:
            return UNKNOWN
        if isinstance(node, cst.Annotation):
            node = node.annotation
        if isinstance(node, cst.SimpleString):
            return self.annotation(cst.parse_expression(node.raw_value))
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
            return self.annotation(node.left) | self.annotation(node.right)
        text = tree.code(node)
        if text in ("Any", "object"):
            return UNKNOWN
        if isinstance(node, cst.Subscript):
            return frozenset({tree.code(node.value)})
        alias = self.program.statements.get(text)
        if isinstance(alias, cst.SimpleStatementLine):
            small = alias.body[0]
            return self.annotation(small.value) if isinstance(small, cst.Assign) else UNKNOWN
        pending = self.program.pending.get(text)
        missing = pending is not None and text not in self.program.statements
        if missing and pending is not None and not pending.name[:1].isupper():
            return UNKNOWN
        return frozenset({text})

    # ---------------------------------------------------------------- attributes

    def _note_stores(self, owner: str, function: cst.FunctionDef) -> None:
        for name, part in stored_in(function):
            value = self.annotation(part.annotation) if isinstance(part, Said) else part
            self._stores.setdefault((owner, name), []).append((function, value))

    def stores(self, owner: str, name: str) -> list[tuple[cst.FunctionDef, Any]]:
        """What a class's methods store in an attribute: expressions, or kinds."""
        return self._stores.get((owner, name), [])

    def attribute(self, owner: str, name: str) -> Kind:
        """The kind of an attribute of a class of the program."""
        key = (owner, name)
        if key not in self._attributes:
            self._attributes[key] = UNKNOWN  # while it is being found
            self._attributes[key] = self._find_attribute(owner, name)
        return self._attributes[key]

    def _find_attribute(self, owner: str, name: str) -> Kind:
        method = self.program.method(owner, name)
        if method is not None:
            return self.annotation(method.returns) if is_property(method) else SOME
        stored = self.stores(owner, name)
        if stored:
            found = [
                (
                    v
                    if isinstance(v, frozenset)
                    else (
                        UNKNOWN
                        if isinstance(v, (Each, Unpacked))
                        else self.of(v, self.environment(owner, f))
                    )
                )
                for f, v in stored
            ]
            return frozenset().union(*found)
        field = self.program.fields(owner).get(name)
        if field is not None:
            return self.annotation(field.annotation)
        for base in self.program.bases(owner):
            return self.attribute(base, name)
        return frozenset({"bool"}) if name == "training" else UNKNOWN

    # ---------------------------------------------------------------- expressions

    def of(self, node: Any, names: Mapping[str, Kind]) -> Kind:
        """The kind of an expression among these names."""
        if isinstance(node, cst.Name):
            return self._name(node.value, names)
        if isinstance(node, cst.Attribute):
            return self._attribute_of(node, names)
        if isinstance(node, cst.Call):
            return self._call(node, names)
        if isinstance(node, cst.IfExp):
            return self.of(node.body, names) | self.of(node.orelse, names)
        if isinstance(node, cst.BooleanOperation):
            left, right = self.of(node.left, names), self.of(node.right, names)
            return (left - NONE if isinstance(node.operator, cst.Or) else left) | right
        if isinstance(node, (cst.Comparison,)):
            return SOME  # of tensors it is a tensor
        if isinstance(node, cst.UnaryOperation):
            return frozenset({"bool"}) if isinstance(node.operator, cst.Not) else SOME
        if isinstance(node, cst.Integer):
            return frozenset({"int"})
        if isinstance(node, cst.Float):
            return frozenset({"float"})
        if isinstance(node, (cst.List, cst.Tuple)):
            parts = [self.of(e.value, names) for e in node.elements]
            return frozenset({"tuple"}) | {f"each:{k}" for part in parts for k in part}
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            return frozenset({"list"}) | {f"each:{k}" for k in self._of_element(node, names)}
        if isinstance(node, cst.Dict):
            inside = [self.of(e.value, names) for e in node.elements]
            return frozenset({"dict"}) | {f"value:{k}" for kind in inside for k in kind}
        if isinstance(node, cst.BinaryOperation):
            both = self.of(node.left, names) | self.of(node.right, names)
            if both & _TENSORS:
                return TENSOR
            return SOME | {k for k in both if k.startswith("each:")}
        if isinstance(node, cst.Subscript):
            base = self.of(node.value, names)
            values = frozenset(k.removeprefix("value:") for k in base if k.startswith("value:"))
            return values or (TENSOR if base <= _TENSORS else UNKNOWN)
        if isinstance(node, (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)):
            return frozenset({"str"})
        return UNKNOWN

    def _of_element(self, node: Any, names: Mapping[str, Kind]) -> Kind:
        inner = dict(names)
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            targets: list[Any] = [clause.target]
            parts: list[Any] = [Each(clause.iter)]
            if isinstance(clause.target, cst.Tuple):
                targets = [e.value for e in clause.target.elements]
                parts = elements_of(parts[0], len(targets))
            for target, part in zip(targets, parts, strict=True):
                if isinstance(target, cst.Name):
                    known = part if isinstance(part, frozenset) else self.elements(part.over, inner)
                    inner[target.value] = known
            clause = clause.inner_for_in
        return self.of(node.elt, inner)

    def elements(self, over: Any, names: Mapping[str, Kind]) -> Kind:
        """The kind of what iterating over an expression gives."""
        kind = self.of(over, names)
        found = frozenset(k.removeprefix("each:") for k in kind if k.startswith("each:"))
        if found:
            return found
        return SOME if isinstance(over, cst.Call) and tree.dotted(over.func) == "range" else UNKNOWN

    def _name(self, name: str, names: Mapping[str, Kind]) -> Kind:
        if name in ("None", "True", "False"):
            return NONE if name == "None" else frozenset({"bool"})
        if name in names:
            return names[name]
        node = self.program.statements.get(name)
        if isinstance(node, cst.ClassDef):
            return frozenset({f"type:{name}"})
        if isinstance(node, cst.FunctionDef):
            return frozenset({f"function:{name}"})
        known = name in self.program.imports or name in self.program.pending
        return SOME if known else UNKNOWN

    def _attribute_of(self, node: cst.Attribute, names: Mapping[str, Kind]) -> Kind:
        base = self.of(node.value, names)
        if not base:
            return base  # of a name that is bound to what is made of itself
        found: Kind = frozenset()
        for one in base - NONE:
            found |= self._member(one, node.attr.value)
        return found or UNKNOWN

    def _member(self, owner: str, name: str) -> Kind:
        if owner in ("Mesh", "Axis"):
            thing = getattr(_SINGLE if owner == "Mesh" else _SINGLE.tp, name, None)
            if isinstance(thing, Axis):
                return AXIS
            return NONE if thing is None else frozenset({type(thing).__name__})
        if self.program.class_of(owner) is not None:
            return self.attribute(owner, name)
        if owner in _TENSORS:
            return UNKNOWN if name == "grad" else SOME
        return UNKNOWN

    def _call(self, node: cst.Call, names: Mapping[str, Kind]) -> Kind:
        dotted = tree.dotted(node.func)
        if dotted == "getattr":
            return UNKNOWN
        kind = self.of(node.func, names)
        if dotted is not None and dotted.split(".")[0] not in names:
            first = dotted.split(".")[0]
            if first in self.program.imports:
                inside = [self.of(a.value, names) for a in node.args] if dotted in _LISTS else []
                each = frozenset(k for part in inside for k in part if k.startswith("each:"))
                last = dotted.split(".")[-1]
                return each | (frozenset({dotted}) if last[:1].isupper() else SOME)
        if not kind:
            return kind
        found: Kind = frozenset()
        for one in kind:
            found |= self._result(one, node, names)
        return found or UNKNOWN

    def _result(self, callee: str, node: cst.Call, names: Mapping[str, Kind]) -> Kind:
        if callee.startswith("type:"):
            return frozenset({callee.removeprefix("type:")})
        if callee.startswith("function:"):
            function = self.program.statements[callee.removeprefix("function:")]
            return self.annotation(function.returns)
        if isinstance(node.func, cst.Attribute):
            for owner in self.of(node.func.value, names):
                name = owner.removeprefix("type:")
                method = self.program.method(name, node.func.attr.value)
                if method is not None:
                    return self.annotation(method.returns)
                if name in _TENSORS:
                    return TENSOR
        forward = self.program.method(callee, "forward")
        return self.annotation(forward.returns) if forward is not None else UNKNOWN


def kinds_of(program: Program) -> Kinds:
    """The kinds of a program, made anew where its text is another than the last time."""
    held = program.memory.get("kinds")
    now = [*program.statements.items()]
    before = [] if held is None else held[0]
    if len(before) == len(now) and all(
        a[0] == b[0] and a[1] is b[1] for a, b in zip(before, now, strict=True)
    ):
        return held[1]  # type: ignore[index,no-any-return]
    found = Kinds(program)
    program.memory["kinds"] = (now, found)
    return found


def class_names(kind: Kind, program: Program) -> list[str] | None:
    """The classes of the program that something is of, None apart; None where it may be another."""
    names = sorted(kind - NONE)
    return names if names and all(program.class_of(n) is not None for n in names) else None
