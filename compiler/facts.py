"""Facts: all that the recording says, in the form that the folder asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from torch import nn

from specc.templates.diagnostic import Diagnostic

from . import tree
from .errors import refuse
from .flatten import Flat, flatten
from .kinds import Kind, Kinds
from .record import Built, Recording
from .source import Sources
from .value import NOT_NONE, Unknown, Value, common, graded, is_config

# What would hide a store, or a read, from a reader of the source.
HIDDEN = frozenset({"setattr", "delattr", "vars", "exec", "eval", "globals", "locals", "__dict__", "__setattr__", "__getattr__"})


@dataclass
class Assumption:
    """A number was asked about, and the answer decided the page's text."""

    test: cst.BaseExpression
    holds: bool
    fields: frozenset[str]


@dataclass
class Binding:
    """What every call on the page passes for the parameters of a forward: a Value, or None where they differ."""

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
        self.used_fields: set[str] = set()  # fields that a folded decision read
        self.assumptions: list[Assumption] = []
        self.bindings: dict[Kind, Binding] = {kind: Binding() for kind in self.kinds.kinds}
        self.folded: dict[int, cst.CSTNode] = {}  # expressions that folding wrote
        self.removed_before: dict[int, cst.CSTNode] = {}  # statements that folding took something out before
        self.removed_after: dict[int, cst.CSTNode] = {}  # and after
        self.config_reads: dict[int, tuple[int, str, cst.CSTNode]] = {}  # attribute nodes that read a config
        self.imports: dict[str, Any] = {}  # names that folding brought in, with what they are
        # Handle of a pattern's loop variable: the classes that it stands for, and its name.
        self.patterns: dict[str, list[Kind | type]] = {}
        self.pattern_names: dict[str, str] = {}
        self._flats: dict[type, Flat] = {}
        self._stores: dict[type, set[str]] = {}
        self._sites: dict[int, list[Built]] = {}
        for built in recording.built.values():
            if self.kinds.holder(built.module) is not None:
                continue  # its parent was built there too, and takes it as an argument
            if built.place is not None and built.owner is not None and self.kinds.of(built.owner) is not None:
                node = self.sources.call(built.place)
                if node is not None:
                    self._sites.setdefault(id(node), []).append(built)
        for kind in self.kinds.kinds:
            self._refuse_hidden(self.flat(kind))
        self._foreign_stores = {
            attribute.attr.value
            for kind in self.kinds.kinds
            for method in self._all_methods(self.flat(kind))
            for attribute in tree.stored_attributes(method)
            if tree.self_attribute(attribute) is None
        }

    def flat(self, kind: Kind) -> Flat:
        if kind.cls not in self._flats:
            self._flats[kind.cls] = flatten(kind.cls, self.sources)
        return self._flats[kind.cls]

    def built_at(self, node: cst.Call, kind: Kind) -> list[Built]:
        """The modules that this call built, over all instances of the kind, in the order of building."""
        found = self._sites.get(id(node))
        if not found:
            return []
        owners = {id(m) for m in kind.instances}
        return [b for b in found if id(b.owner) in owners]

    def argument(self, kind: Kind, name: str) -> Value | None:
        """What every instance of the kind was given for a parameter of its constructor."""
        values = [b.arguments.get(name) for b in kind.built]
        if name == "submodules":
            return Value(values[0]) if all(v is values[0] for v in values) else None
        try:
            return graded(common(values))
        except Unknown:
            return Value(NOT_NONE) if all(v is not None for v in values) else None

    def attribute(self, kind: Kind, name: str) -> Any:
        """What `self.name` is on every instance once it is built; raises Unknown."""
        return common([_plain_attribute(m, name) for m in kind.instances])

    def is_stable(self, flat: Flat, name: str) -> bool:
        """Whether `self.name` keeps the value that the class's own constructor gave it.

        What `nn.Module` or another imported base stores (`self.training`) is not the class's to promise.
        """
        return name in self._kept_stores(flat) and name not in self._foreign_stores

    def _kept_stores(self, flat: Flat) -> set[str]:
        """Attributes that the constructors of a class assign, or register by a literal name, and no other method does."""
        if flat.cls not in self._stores:
            found: set[str] = set()
            for method in flat._inits.values():
                found |= {a.attr.value for a in tree.stored_attributes(method.node) if tree.self_attribute(a)}
                found |= {i.raw_value for i in tree.walk(method.node) if isinstance(i, cst.SimpleString)}
            later = {
                a.attr.value
                for name, method in flat.methods.items()
                if name != "__init__"
                for a in tree.stored_attributes(method.node)
                if tree.self_attribute(a)
            }
            self._stores[flat.cls] = found - later - set(flat.methods)
        return self._stores[flat.cls]

    def keep(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Remember that folding wrote this expression."""
        self.folded[id(node)] = node
        return node

    def is_folded(self, node: cst.CSTNode) -> bool:
        return id(node) in self.folded

    def read_config(self, node: cst.CSTNode, config: Any, name: str) -> None:
        self.config_reads[id(node)] = (self.kinds.config_index(config), name, node)

    def children_kinds(self, module: nn.Module) -> Iterator[Kind]:
        """The kinds that a module, or the modules of a list, belong to."""
        kind = self.kinds.of(module)
        if kind is not None:
            yield kind
        elif isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            for child in module.children():
                yield from self.children_kinds(child)

    @staticmethod
    def _all_methods(flat: Flat) -> Iterator[cst.FunctionDef]:
        for method in (*flat.methods.values(), *flat._inits.values()):
            yield method.node

    def _refuse_hidden(self, flat: Flat) -> None:
        for method in self._all_methods(flat):
            for node in tree.walk(method):
                name = node.value if isinstance(node, cst.Name) else None
                if isinstance(node, cst.Attribute):
                    name = node.attr.value
                if name in HIDDEN:
                    refuse(
                        "SP305",
                        f"`{flat.cls.__name__}.{method.name.value}` uses `{name}`, which hides what it stores or reads",
                        flat.cls,
                        help="assign the attribute by name, in `__init__`",
                    )


def _plain_attribute(module: nn.Module, name: str) -> Any:
    """An attribute as it is stored: no property runs."""
    for store in (module.__dict__, module._parameters, module._modules, module._buffers):
        if name in store:
            return store[name]
    raise Unknown


def config_of(value: Value | None) -> Any:
    """The config that a value is, else None."""
    return value.object if value is not None and is_config(value.object) else None
