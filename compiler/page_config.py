"""The page's `Config`: the fields and properties that the page still reads, and what folding
assumed of them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from specc.templates.config import TRAINER_FIELDS
from specc.templates.diagnostic import Span

from . import tree
from .construct import config_handle
from .errors import refuse, span_of_class
from .facts import Facts
from .flatten import Method
from .fold import Folder
from .long_comments import MARGIN, width
from .value import Scope, Value, float_text, is_field_or_property, is_literal, literal


@dataclass
class FieldText:
    name: str
    type: str
    value: str
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether the note has room behind the field."""
        return width(f"    {self.name}: {self.type} = {self.value}  # {self.note}") <= MARGIN


@dataclass
class ConfigText:
    """One config class of the page."""

    name: str
    base: str | None
    fields: list[FieldText] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)


class PageConfig:
    """Collects what the final text reads of each config, and writes the classes.

    A config of the same class as an earlier one derives from it on the page, and states what
    differs.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._reads: dict[int, set[str]] = {}  # fields, by the config's number
        self._properties: dict[str, dict[int, cst.FunctionDef]] = (
            {}
        )  # folded by each config that it is read of
        self._aliases: dict[str, str] = (
            {}
        )  # property -> the field that it comes to, in every config

    @property
    def fields(self) -> set[str]:
        """Fields, of any config, that are on the page."""
        return {name for names in self._reads.values() for name in names}

    @property
    def aliases(self) -> dict[str, str]:
        """Properties that come to a field, or to another property, in every config, with it."""
        return dict(self._aliases)

    def scan(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Note every field and property that these nodes read."""
        for node in nodes:
            for item in tree.walk(node):
                found = self.facts.config_reads.get(id(item))
                if found is not None:
                    for index in sorted(found[0]):
                        self._read(index, found[1])

    def scan_names(self, names: Iterable[str]) -> None:
        """Fields by name alone: what a function that is handed a whole config reads of it."""
        known = sorted(set(names))
        for index, config in enumerate(self.facts.kinds.configs):
            for name in known:
                if _is_property(config, name):
                    self._hold(index, name)  # its readers have its own name, not that of a field
                elif is_field_or_property(config, name):
                    self._read(index, name)

    def name_of(self, name: str) -> str:
        """What the page reads in the place of a field or a property."""
        return self._aliases.get(name, name)

    def methods(self) -> list[tuple[cst.FunctionDef, type]]:
        """The properties that the page holds, each with the class that wrote it."""
        configs = self.facts.kinds.configs
        return [
            (node, _owner(type(configs[index]), name))
            for name, nodes in self._properties.items()
            for index, node in nodes.items()
        ]

    def _read(self, index: int, name: str) -> None:
        config = self.facts.kinds.configs[index]
        if _is_property(config, name):
            self._property(index, name)
        elif name in {f.name for f in dataclasses.fields(config)}:
            self._reads.setdefault(index, set()).add(name)

    def _property(self, index: int, name: str) -> None:
        if name in self._aliases:
            self._read(index, self._aliases[name])
            return
        configs = self.facts.kinds.configs
        nodes = self._properties.get(name, {})
        if index in nodes:
            return
        readers = {
            i
            for indices, read, _ in self.facts.config_reads.values()
            if read == name
            for i in indices
        }
        readers |= {index}
        new = {
            i: self._folded_property(configs[i], name)
            for i in sorted(readers)
            if _is_property(configs[i], name)
        }
        aliases = {_returned_field(node, configs[i]) for i, node in new.items()}
        alias = (
            aliases.pop() if len(aliases) == 1 and len(new) == len(readers) and not nodes else None
        )
        if alias is not None:
            self._aliases[name] = alias
            self._read(index, alias)
            self._aliases[name] = self._aliases.get(alias, alias)
            return
        self._properties[name] = {**new, **nodes}
        self.scan(self._properties[name].values())

    def _hold(self, index: int, name: str) -> None:
        """The page's class has this property, whatever else stands for it elsewhere."""
        nodes = self._properties.setdefault(name, {})
        if index not in nodes:
            nodes[index] = self._folded_property(self.facts.kinds.configs[index], name)
            self.scan([nodes[index]])

    def _folded_property(self, config: Any, name: str) -> cst.FunctionDef:
        owner = _owner(type(config), name)
        definition = self.facts.sources.class_def(owner)
        if definition is None:
            refuse(
                "SP205",
                f"the source of `{owner.__name__}`, whose property `{name}` the page reads, is "
                f"not at the top level of a file",
                owner,
                help="define the config's class in a module",
            )
        node = next(
            s
            for s in tree.body_of(definition)
            if isinstance(s, cst.FunctionDef) and s.name.value == name
        )
        _refuse_whole_self(node, owner, self.facts)
        folder = _PropertyFolder(self.facts, config, owner, node)
        folded = tree.with_body(node, folder.block(tree.body_of(node)))
        return _narrowed(folded.with_changes(leading_lines=[]))

    # ---------------------------------------------------------------- writing

    def classes(
        self, names: dict[str, str], to_page: Callable[[cst.CSTNode], str]
    ) -> list[ConfigText]:
        """The config classes, one that another derives from before it."""
        configs = self.facts.kinds.configs
        if configs:
            self._reads.setdefault(0, set()).update(
                n for n in TRAINER_FIELDS if _holds(configs[0], n)
            )
        first_of: dict[type, int] = {}
        texts: list[ConfigText] = []
        for index, config in enumerate(configs):
            first = first_of.setdefault(type(config), index)
            name = names[config_handle(index)] if index else "Config"
            base = None if first == index else (first, texts[first])
            texts.append(self._class(index, name, base, to_page))
        return texts

    def _class(
        self,
        index: int,
        name: str,
        base: tuple[int, ConfigText] | None,
        to_page: Callable[[cst.CSTNode], str],
    ) -> ConfigText:
        config = self.facts.kinds.configs[index]
        text = ConfigText(name, base[1].name if base else None)
        inherited = self._reads.get(base[0], set()) if base else set()
        for f in dataclasses.fields(config):
            if f.name in self._reads.get(index, ()):
                first = self.facts.kinds.configs[base[0]] if base else None
                if f.name not in inherited or getattr(config, f.name) != getattr(first, f.name):
                    text.fields.append(self._field(config, f))
        for prop in self._property_order(config):
            node, theirs = (
                self._properties[prop].get(index),
                self._properties[prop].get(base[0]) if base else None,
            )
            if node is not None and (theirs is None or tree.code(node) != tree.code(theirs)):
                text.properties.append(to_page(self._unaliased(node)))
        text.asserts = self._asserts(index)
        if base is not None and not text.asserts:
            own = {f.name for f in text.fields}
            if any(
                name in own for line in base[1].asserts for name in re.findall(r"self\.(\w+)", line)
            ):
                text.asserts = ["pass"]  # what the base asserts is of its own numbers
        return text

    def _unaliased(self, node: Any) -> Any:
        """A property's text with each property that comes to a field replaced by the field."""

        def swap(item: cst.CSTNode) -> cst.CSTNode | None:
            name = tree.self_attribute(item)
            if isinstance(item, cst.Attribute) and name in self._aliases:
                return item.with_changes(attr=cst.Name(self._aliases[name or ""]))
            return None

        return tree.replace(node, swap)

    def _property_order(self, config: Any) -> list[str]:
        order = [n for c in reversed(type(config).__mro__) for n in c.__dict__]
        return sorted((n for n in self._properties if n in order), key=order.index)

    def _field(self, config: Any, f: dataclasses.Field[Any]) -> FieldText:
        value = getattr(config, f.name)
        declared = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        if isinstance(value, int) and not isinstance(value, bool) and declared.startswith("float"):
            value = float(value)
        return FieldText(
            f.name,
            _type_text(value, declared),
            self._value_text(value, f.name, type(config)),
            f.metadata.get("note", ""),
        )

    def _asserts(self, index: int) -> list[str]:
        """What folding assumed of numbers that are still on the page, in the author's words."""
        lines: dict[str, None] = {}
        there = self._reads.get(index, set()) | {
            n for n, nodes in self._properties.items() if index in nodes
        }
        for assumption in self.facts.assumptions:
            if self.facts.kinds.config_index(assumption.config) != index:
                continue
            test = self._unaliased(assumption.test)
            read = {item.attr.value for item in tree.walk(test) if isinstance(item, cst.Attribute)}
            if read and read <= there:
                text = tree.code(test)
                lines[f"assert {text}" if assumption.holds else f"assert not ({text})"] = None
        return list(lines)

    def _value_text(self, value: Any, name: str, cls: type) -> str:
        if isinstance(value, float):
            return float_text(value)
        if isinstance(value, str) and len(value) > _LONG_STRING:
            return f"({' '.join(_pieces(value))})"
        if is_literal(value):
            return tree.code(literal(value))
        refuse(
            "SP403",
            f"the config's `{name}` is {value!r}, which can't be written on a page",
            self._reader(name) or span_of_class(cls),
            help=(
                "use a number, a boolean, a string or a tuple of those, or ask of it in tests alone"
            ),
        )

    def _reader(self, name: str) -> Span | None:
        """A line that reads a field."""
        for _, read, node in self.facts.config_reads.values():
            if read == name:
                for flat in self.facts.flats:
                    span = self.facts.sources.span(node, *flat.chain)
                    if span is not None:
                        return span
        return None


def _is_property(config: Any, name: str) -> bool:
    return isinstance(inspect.getattr_static(type(config), name, None), property)


def _owner(cls: type, name: str) -> type:
    return next(c for c in cls.__mro__ if name in c.__dict__)


class _PropertyFolder(Folder):
    """Folds a property of the config class: `self` is the config."""

    def __init__(self, facts: Facts, config: Any, owner: type, node: cst.FunctionDef) -> None:
        super().__init__(
            facts, facts.kinds.root, facts.flat(facts.kinds.root), Method(node, owner), None
        )
        self.config = config
        self.scope = Scope(vars(sys.modules[owner.__module__]), {"self": Value(config)})

    def _modules(self, node: cst.BaseExpression) -> None:
        return None

    def _read_config(self, node: cst.Attribute, new: cst.Attribute) -> None:
        if tree.self_attribute(node) is not None:
            if not is_field_or_property(self.config, node.attr.value):
                self.refuse_read(node, self.config)
            self.facts.read_config(new, self.config, node.attr.value)
        else:
            super()._read_config(node, new)

    def _note_config_value(self, node: cst.CSTNode, new: cst.CSTNode | None = None) -> None:
        return None


def _refuse_whole_self(node: cst.FunctionDef, owner: type, facts: Facts) -> None:
    """A property may read its config field by field alone; `super()` has no base on the page."""
    looked_into = {id(a.value) for a in tree.walk(node) if isinstance(a, cst.Attribute)}
    for item in tree.walk(node.body):
        whole = isinstance(item, cst.Name) and item.value in ("self", "super")
        if whole and id(item) not in looked_into:
            refuse(
                "SP207",
                f"the property `{node.name.value}` of `{owner.__name__}` uses `{tree.code(item)}` "
                f"other than to read a field",
                facts.sources.span(item, owner),
                help="read the fields that are needed, by name",
            )


def _narrowed(node: cst.FunctionDef) -> cst.FunctionDef:
    """A property that makes one class of a union in every case says so: `-> A | B` is `-> A`."""
    value = _only_return(node)
    made = value.func if isinstance(value, cst.Call) else None
    if not isinstance(made, cst.Name) or node.returns is None:
        return node
    union = node.returns.annotation
    named = {part.value for part in tree.walk(union) if isinstance(part, cst.Name)}
    if not isinstance(union, cst.BinaryOperation) or made.value not in named:
        return node
    return node.with_changes(returns=node.returns.with_changes(annotation=made))


def _only_return(node: cst.FunctionDef) -> cst.BaseExpression | None:
    """What a body returns that has no other statement."""
    statements = [s for s in tree.body_of(node) if tree.docstring_of([s]) is None]
    if len(statements) == 1 and isinstance(statements[0], cst.SimpleStatementLine):
        small = statements[0].body[0]
        if isinstance(small, cst.Return):
            return small.value
    return None


def _returned_field(node: cst.FunctionDef, config: Any) -> str | None:
    """`x` for a property that comes to `return self.x`, a field or another property."""
    value = _only_return(node)
    name = None if value is None else tree.self_attribute(value)
    if name is not None and (
        _holds(config, name) or isinstance(getattr(type(config), name, None), property)
    ):
        return name
    return None


def _holds(config: Any, name: str) -> bool:
    return (
        name in {f.name for f in dataclasses.fields(config)} and getattr(config, name) is not None
    )


_LONG_STRING = 60  # characters; of a longer one each line has 80


def _pieces(text: str) -> list[str]:
    """A long string as several, one for each line."""
    return [tree.code(literal(text[i : i + 80])) for i in range(0, len(text), 80)]


def _type_text(value: Any, declared: str) -> str:
    if value is None:
        return declared
    if isinstance(value, tuple):
        inner = sorted({type(v).__name__ for v in value}) or ["int"]
        return f"tuple[{' | '.join(inner)}, ...]"
    return type(value).__name__
