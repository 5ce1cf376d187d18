"""Facts: all that the recording says, in the form that the folder asks for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import libcst as cst
from torch import nn

from specc.templates.diagnostic import Diagnostic

from . import tree
from .assumptions import Assumption
from .exposure import Exposure
from .flatten import Flat, flatten
from .hazards import refuse_hazards, refuse_helper_hazards
from .helpers import reachable_helpers
from .kinds import Kind, Kinds
from .record import Built, Recording
from .source import Sources
from .value import (
    NOT_NONE,
    Scope,
    SeveralSubmodules,
    Unknown,
    Value,
    common,
    evaluate,
    graded,
    is_config,
    is_spec,
)

CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)

Expression = TypeVar("Expression", bound=cst.BaseExpression)


@dataclass(frozen=True)
class Decision:
    """An expression of a class as its author wrote it, and what it comes to on a kind's page."""

    node: cst.CSTNode
    value: Value
    kind: Kind


@dataclass
class Binding:
    """What every call on the page passes for the parameters of a forward: a Value, or None where
    they differ.
    """

    values: dict[str, Value | None] = field(default_factory=dict)
    called: bool = False
    escaped: bool = False  # handed to code that we do not see, which may call it with anything

    def join(self, values: dict[str, Value | None]) -> None:
        if not self.called:
            self.values, self.called = values, True
            return
        for name in self.values:
            self.values[name] = join(self.values[name], values.get(name))


def join(a: Value | None, b: Value | None) -> Value | None:
    """What is known of a value that is one of two."""
    if a is None or b is None:
        return None
    try:
        return Value(common([a.object, b.object]), max(a.grade, b.grade), a.fields | b.fields)
    except Unknown:
        never_none = a.object is not None and b.object is not None
        return Value(NOT_NONE) if never_none else None


class Facts:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.kinds = Kinds(recording)
        self.sources = Sources()
        self.notes: list[Diagnostic] = []
        self.used_fields: set[tuple[int, str]] = (
            set()
        )  # fields that a folded decision read, by config's id
        self.decisions: list[Decision] = []  # in the order of folding, some of them twice
        self.read_by_spec: frozenset[str] = frozenset()  # and those that completing the spec read
        self.text_reads: set[tuple[int, str]] = set()  # what text reads, by config's number
        self.read_by_name: set[str] = set()  # attributes of whatever a config may be handed on to
        self.config_goes_elsewhere = False
        self.assumptions: list[Assumption] = []
        self.bindings: dict[Kind, Binding] = {kind: Binding() for kind in self.kinds.kinds}
        self.folded: dict[int, cst.CSTNode] = {}  # expressions that folding wrote
        self.removed_before: dict[int, cst.CSTNode] = (
            {}
        )  # statements that folding took something out before
        self.removed_after: dict[int, cst.CSTNode] = {}  # and after
        # Attribute nodes that read a config: of which configs (two classes of the page may share a
        # node of their source), and which name.
        self.config_reads: dict[int, tuple[frozenset[int], str, cst.CSTNode]] = {}
        # Places where a whole config is a value, each with the class whose text it stands in.
        self.config_values: dict[int, tuple[cst.CSTNode, type]] = {}
        self.imports: dict[str, Any] = {}  # names that folding brought in, with what they are
        # Handle of a pattern's loop variable: the classes that it stands for, and its name.
        self.origins: dict[int, cst.CSTNode] = (
            {}
        )  # what the author wrote where folding wrote a stand-in
        self.patterns: dict[str, list[Kind | type]] = {}
        self.pattern_names: dict[str, str] = {}
        # What each class's constructor is known to leave in its attributes, and in its parameters.
        self.constructed: dict[Kind, dict[str, Value | None]] = {}
        self.passed: dict[tuple[int, str], Value | None] = {}  # by id of the module built
        self.calls_folded: set[int] = set()  # ids of modules whose call has been folded
        self._flats: dict[type, Flat] = {}
        self._stores: dict[type, set[str]] = {}
        self._sites: dict[int, list[Built]] = {}
        for built in recording.built.values():
            if self.kinds.holder(built.module) is not None:
                continue  # its parent was built there too, and takes it as an argument
            if (
                built.place is not None
                and built.owner is not None
                and self.kinds.of(built.owner) is not None
            ):
                node = self.sources.call(built.place)
                if node is not None:
                    self._sites.setdefault(id(node), []).append(built)
        self.flats = [self.flat(kind) for kind in self.kinds.kinds]
        for flat in self._flats.values():
            refuse_hazards(flat, self.sources)
        configs = tuple(
            {c for config in self.kinds.configs for c in type(config).__mro__ if c is not object}
        )
        self.helpers = reachable_helpers(self._flats.values(), self.sources, configs)
        for helper in self.helpers:
            refuse_helper_hazards(helper, self.sources)
        self.exposure = Exposure(self._flats.values(), self.helpers)
        self._escape_what_is_unseen()

    def flat(self, kind: Kind) -> Flat:
        if kind.cls not in self._flats:
            self._flats[kind.cls] = flatten(kind.cls, self.sources)
        return self._flats[kind.cls]

    def built_at(self, node: cst.Call, kind: Kind) -> list[Built]:
        """The modules that this call built, over all instances of the kind, in the order of
        building.
        """
        found = self._sites.get(id(node))
        if not found:
            return []
        owners = {id(m) for m in kind.instances}
        return [b for b in found if id(b.owner) in owners]

    def argument(self, kind: Kind, name: str) -> Value | None:
        """What every instance of the kind was given for a parameter of its constructor.

        An argument that a parent's text computes is known where that text is: what the build
        happened to pass may depend on the machine that it ran on.
        """
        values = [b.arguments.get(name) for b in kind.built]
        if name == "submodules":
            same = all(v is values[0] for v in values)
            return Value(values[0] if same else SeveralSubmodules(values))
        known = self._given(kind.built[0], kind, name)
        for built in kind.built[1:]:
            known = join(known, self._given(built, kind, name))
        return known

    def _given(self, built: Built, kind: Kind, name: str) -> Value | None:
        value = built.arguments.get(name)
        if (id(built.module), name) in self.passed:
            return self.passed[id(built.module), name]
        if name in built.given:
            # By the spec, which is the program; or by a call that the folder could not follow.
            from_spec = (
                id(built.module) in self.calls_folded or self.kinds.holder(built.module) is not None
            )
            if not from_spec and built.module is not self.recording.root:
                return Value(value) if is_config(value) or is_spec(value) else None
            try:
                return graded(common([value]))
            except Unknown:
                return None if value is None else Value(NOT_NONE)
        init = self.flat(kind).init_of(kind.cls)
        for param in tree.parameters(init.node) if init is not None else ():
            if param.name.value == name and param.default is not None and init is not None:
                return self.default(param.default, init.owner)
        return None

    def default(self, node: cst.BaseExpression, owner: type) -> Value | None:
        """The value of a parameter's default, which is evaluated in its own module."""
        scope = Scope(vars(sys.modules[owner.__module__]))
        try:
            return evaluate(node, scope)
        except Unknown:
            return Value(NOT_NONE) if isinstance(node, (cst.Tuple, cst.List, cst.Dict)) else None

    def attribute(self, kind: Kind, name: str) -> Value:
        """What `self.name` is on every instance once it is built; raises Unknown.

        It is known where the constructor's text says so: that the instances at hand agree is no
        reason, since what they were built from may be the machine's.
        """
        value = self.constructed.get(kind, {}).get(f"self.{name}")
        if value is None:
            raise Unknown
        return value

    def is_stable(self, flat: Flat, name: str) -> bool:
        """Whether `self.name` keeps the value that the class's own constructor gave it.

        What `nn.Module` or another imported base stores (`self.training`) is not the class's to
        promise.
        """
        return name in self._kept_stores(flat) and not self.exposure.may_be_stored(flat, name)

    def _kept_stores(self, flat: Flat) -> set[str]:
        """Attributes that the constructors of a class assign, or register by a literal name, and no
        other method does.
        """
        if flat.cls not in self._stores:
            found: set[str] = set()
            for method in flat._inits.values():
                found |= {
                    a.attr.value
                    for a in tree.stored_attributes(method.node)
                    if tree.self_attribute(a)
                }
                found |= {
                    i.raw_value for i in tree.walk(method.node) if isinstance(i, cst.SimpleString)
                }
            later = {
                a.attr.value
                for method in flat.every_method()
                # A function made in the constructor stores when it is called, which may be later.
                for node in (
                    tree.nested_functions(method.node)
                    if method.node.name.value == "__init__"
                    else [method.node]
                )
                for a in tree.stored_attributes(node)
                if tree.self_attribute(a)
            }
            self._stores[flat.cls] = found - later - set(flat.methods)
        return self._stores[flat.cls]

    def decide(self, node: cst.CSTNode, value: Value, kind: Kind) -> None:
        """Remember that this expression is not on the page because its value is known."""
        self.used_fields |= value.fields
        self.decisions.append(Decision(node, value, kind))

    def keep(self, node: Expression) -> Expression:
        """Remember that folding wrote this expression."""
        self.folded[id(node)] = node
        return node

    def is_folded(self, node: cst.CSTNode) -> bool:
        return id(node) in self.folded

    def read_config(self, node: cst.CSTNode, config: Any, name: str) -> None:
        known = self.config_reads.get(id(node))
        indices = frozenset({self.kinds.config_index(config)}) | (
            known[0] if known else frozenset()
        )
        self.config_reads[id(node)] = (indices, name, node)

    def children_kinds(self, module: nn.Module) -> Iterator[Kind]:
        """The kinds that a module, or the modules of a list, belong to."""
        kind = self.kinds.of(module)
        if kind is not None:
            yield kind
        if isinstance(module, CONTAINERS):
            for child in module.children():
                yield from self.children_kinds(child)

    @property
    def used_names(self) -> set[str]:
        """Fields, of any config, that decided something."""
        return {name for _, name in self.used_fields} | self.read_by_spec

    def forget_patterns(self) -> None:
        self.patterns.clear()
        self.pattern_names.clear()

    def is_config_class(self, thing: Any) -> bool:
        """Whether this is the class of one of the model's configs, or a base of one."""
        if not isinstance(thing, type) or thing is object:
            return False
        return any(thing in type(config).__mro__ for config in self.kinds.configs)

    def escape(self, module: nn.Module) -> None:
        """Somebody whom we do not see may call a module, and those in it, with anything."""
        for inner in module.modules():
            kind = self.kinds.of(inner)
            if kind is not None:
                self.bindings[kind].escaped = True

    def _escape_what_is_unseen(self) -> None:
        """Modules that no constructor made (copies), and classes that call themselves or hand
        themselves on.
        """
        copied = {type(m) for m in self.recording.root.modules() if self.recording.of(m) is None}
        for kind in self.kinds.kinds:
            flat = self.flat(kind)
            if self.exposure.calls_itself(flat) or kind.cls in copied:
                self.bindings[kind].escaped = True
            if self.exposure.hands_on_children(flat):
                for module in kind.instances:
                    for child in module.children():
                        self.escape(child)


def elements(modules: Iterable[nn.Module], index: cst.Subscript) -> list[nn.Module] | None:
    """The modules that `layers[i]` may be, where `layers` is one of these containers; None for a
    slice.
    """
    holders = list(modules)
    if not holders or not all(isinstance(h, CONTAINERS) for h in holders):
        return None
    if len(index.slice) != 1 or not isinstance(index.slice[0].slice, cst.Index):
        return None
    return [child for holder in holders for child in holder.children()]


def config_of(value: Value | None) -> Any:
    """The config that a value is, else None."""
    return value.object if value is not None and is_config(value.object) else None
