"""Which function each call reaches, and which may be called from where nobody sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from .. import tree
from .bound_names import Kind
from .kinds_of import NONE, Kinds
from .program import Program, is_property, is_static

Key = tuple[str | None, str]  # a class or None, and the function's name
_ROOT = "build_model"


@dataclass(frozen=True)
class Site:
    """A call, where it stands, and what it may reach: the same argument means the same for all."""

    call: cst.Call
    owner: str | None
    function: cst.FunctionDef
    callees: tuple[Key, ...]
    names: Mapping[str, Kind]


@dataclass
class CallGraph:
    """`unseen`: functions that text which nobody follows may call."""

    program: Program
    sites: dict[Key, list[Site]] = field(default_factory=dict)
    unseen: set[Key] = field(default_factory=set)

    def parameters(self, key: Key) -> list[cst.Param]:
        """The parameters that a call's arguments are for: `self` apart; of a record, its fields."""
        owner = key[0]
        function = self.function(key)
        if function is None:
            assert owner is not None
            fields = self.program.fields(owner)
            return [
                cst.Param(cst.Name(n), annotation=f.annotation, default=f.value)
                for n, f in fields.items()
            ]
        params = tree.parameters(function)
        return params[1:] if owner is not None and not is_static(function) else params

    def function(self, key: Key) -> cst.FunctionDef | None:
        """The function of a key; None for the constructor of a record."""
        owner, name = key
        if owner is None:
            node = self.program.statements.get(name)
            return node if isinstance(node, cst.FunctionDef) else None
        return self.program.method(owner, name)

    def seen(self, key: Key) -> list[Site] | None:
        """Every call of a function; None where others may call it."""
        function = self.function(key)
        if key in self.unseen or key == (None, _ROOT):
            return None
        if function is not None and any(
            isinstance(p, cst.Param) for p in (function.params.star_arg, function.params.star_kwarg)
        ):
            return None
        return self.sites.get(key) or None

    def given(self, site: Site, key: Key) -> dict[str, cst.BaseExpression] | None:
        """A call's arguments by name, without those that a `*` spreads; None where `**` does."""
        args = list(site.call.args)
        if any(a.star == "**" for a in args):
            return None
        spread = next((i for i, a in enumerate(args) if a.star), len(args))
        kept = [a for i, a in enumerate(args) if i < spread or a.keyword is not None]
        return tree.arguments_by_name(
            site.call.with_changes(args=kept), [p.name.value for p in self.parameters(key)]
        )

    def is_known(self, key: Key, name: str) -> bool:
        """Whether every call that is seen says what it passes for a parameter."""
        function = self.function(key)
        kwonly = function is not None and name in {
            p.name.value for p in function.params.kwonly_params
        }
        return all(
            self.given(s, key) is not None and (kwonly or not any(a.star for a in s.call.args))
            for s in self.sites.get(key, [])
        )


def call_graph(program: Program, kinds: Kinds) -> CallGraph:
    """The calls of a program as it stands; `kinds` are its kinds."""
    held = program.memory.get("graph")
    if held is not None and held[0] is kinds:
        return held[1]  # type: ignore[no-any-return]
    graph = _call_graph(program, kinds)
    program.memory["graph"] = (kinds, graph)
    return graph


def _call_graph(program: Program, kinds: Kinds) -> CallGraph:
    graph = CallGraph(program)
    derived = {b for n in program.statements for b in program.bases(n)}
    for owner, function in program.functions():
        related = owner in derived or (owner is not None and program.bases(owner))
        if related and function.name.value != "__init__":
            graph.unseen.add((owner, function.name.value))
        if is_property(function):
            graph.unseen.add((owner, function.name.value))
    for owner, function in program.functions():
        names = kinds.environment(owner, function)
        _Reader(graph, kinds, owner, function).read(function, names)
    for name, statement in program.statements.items():
        if isinstance(statement, cst.ClassDef):
            for item in tree.body_of(statement):
                if not isinstance(item, cst.FunctionDef):
                    _read_outside(graph, kinds, name, item)
        elif not isinstance(statement, cst.FunctionDef):
            _read_outside(graph, kinds, None, statement)
    return graph


def _read_outside(graph: CallGraph, kinds: Kinds, owner: str | None, statement: Any) -> None:
    """A statement outside of functions."""
    inside = cst.FunctionDef(cst.Name("_"), cst.Parameters(), cst.IndentedBlock([statement]))
    _Reader(graph, kinds, owner, inside).read(statement, {})


class _Reader:
    def __init__(
        self, graph: CallGraph, kinds: Kinds, owner: str | None, function: cst.FunctionDef
    ) -> None:
        self.graph, self.kinds, self.owner, self.function = graph, kinds, owner, function
        self.program = graph.program

    def read(self, node: Any, names: Mapping[str, Kind]) -> None:
        if isinstance(node, cst.Annotation):
            return
        if isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)):
            names = self._inside(node, names)
        if isinstance(node, (cst.Lambda, cst.FunctionDef)) and node is not self.function:
            own = {p.name.value: frozenset({"?"}) for p in tree.every_parameter(node)}
            names = {**names, **own}
        if isinstance(node, cst.Call):
            self._call(node, names)
            for arg in node.args:
                self._value(arg.value, names)
                self.read(arg.value, names)
            if isinstance(node.func, cst.Attribute):
                self.read(node.func.value, names)
            elif not isinstance(node.func, cst.Name):
                self.read(node.func, names)
            return
        if isinstance(node, cst.Attribute):
            self.read(node.value, names)
            return
        for part in tree.parts(node):
            if isinstance(part, cst.BaseExpression):
                self._value(part, names, node)
            self.read(part, names)

    def _inside(self, node: Any, names: Mapping[str, Kind]) -> Mapping[str, Kind]:
        inner = dict(names)
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            over = clause.iter
            targets: list[Any] = [clause.target]
            overs: list[Any] = [over]
            if isinstance(clause.target, cst.Tuple):
                targets = [e.value for e in clause.target.elements]
                overs = [None] * len(targets)
                if isinstance(over, cst.Call) and tree.dotted(over.func) in ("zip", "enumerate"):
                    values = [a.value for a in over.args]
                    overs = [None, *values] if tree.dotted(over.func) == "enumerate" else values
            for target, part in zip(targets, overs, strict=False):
                known = frozenset({"?"}) if part is None else self.kinds.elements(part, inner)
                names_in = [i.value for i in tree.walk(target) if isinstance(i, cst.Name)]
                inner |= dict.fromkeys(names_in, known)
            clause = clause.inner_for_in
        return inner

    def _value(
        self, node: cst.BaseExpression, names: Mapping[str, Kind], parent: Any = None
    ) -> None:
        """A function, class or module used as a value: whoever gets it may call it."""
        if not isinstance(node, (cst.Name, cst.Attribute)):
            return
        if isinstance(parent, (cst.Annotation, cst.AssignTarget)):
            return
        for kind in self.kinds.of(node, names):
            if kind.startswith("function:"):
                self.graph.unseen.add((None, kind.removeprefix("function:")))
            elif isinstance(node, cst.Attribute) and kind == "some":
                for owner in self.kinds.of(node.value, names):
                    name = owner.removeprefix("type:")
                    if self.program.method(name, node.attr.value) is not None:
                        self.graph.unseen.add((name, node.attr.value))

    def _call(self, node: cst.Call, names: Mapping[str, Kind]) -> None:
        found = self._callees(node, names)
        site = Site(node, self.owner, self.function, tuple(found), names)
        for key in found:
            self.graph.sites.setdefault(key, []).append(site)

    def _callees(self, node: cst.Call, names: Mapping[str, Kind]) -> list[Key]:
        if self._is_super(node.func):
            assert isinstance(node.func, cst.Attribute)
            for base in self.program.bases(self.owner or ""):
                return [(base, node.func.attr.value)]
            return []
        dotted = tree.dotted(node.func)
        if dotted is not None:
            first = dotted.split(".")[0]
            pending = first in self.program.pending and first not in self.program.statements
            if first not in names and (first in self.program.imports or pending):
                return []
        found: list[Key] = []
        kind = self.kinds.of(node.func, names) - NONE
        for one in sorted(kind):
            if one.startswith("function:"):
                found.append((None, one.removeprefix("function:")))
            elif one.startswith("type:"):
                found += self._constructor(one.removeprefix("type:"))
            elif self.program.class_of(one) is not None:
                found += self._method(one, "forward")
            elif one in ("some", "?"):
                found += self._by_attribute(node, names, one)
        return found

    def _constructor(self, name: str) -> list[Key]:
        if self.program.is_record(name):
            return [(name, "__init__")]
        return self._method(name, "__init__")

    def _method(self, owner: str, name: str) -> list[Key]:
        if self.program.method(owner, name) is not None:
            return [(owner, name)]
        return [key for base in self.program.bases(owner) for key in self._method(base, name)]

    def _by_attribute(self, node: cst.Call, names: Mapping[str, Kind], kind: str) -> list[Key]:
        if not isinstance(node.func, cst.Attribute):
            builtin = isinstance(node.func, cst.Name) and node.func.value not in names
            if kind == "?" and not builtin:
                self._may_call("forward")  # a module, of which nothing is known
            return []
        name = node.func.attr.value
        owners = self.kinds.of(node.func.value, names) - NONE
        found: list[Key] = []
        for owner in sorted(owners):
            bare = owner.removeprefix("type:")
            if self.program.class_of(bare) is not None:
                found += self._method(bare, name)
            elif owner == "?":
                self._may_call(name)
        return found

    def _may_call(self, name: str) -> None:
        for owner, function in self.program.functions():
            if owner is not None and function.name.value == name:
                self.graph.unseen.add((owner, name))

    def _is_super(self, func: cst.BaseExpression) -> bool:
        return (
            isinstance(func, cst.Attribute)
            and isinstance(func.value, cst.Call)
            and tree.dotted(func.value.func) == "super"
        )


def all_keys(program: Program) -> Iterator[Key]:
    for owner, function in program.functions():
        yield owner, function.name.value
    for name in program.statements:
        if program.is_record(name):
            yield name, "__init__"
