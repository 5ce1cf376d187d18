"""The page's `Config`: the fields and properties that the page still reads, and what folding assumed of them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from specc.templates.config import LAUNCH_FIELDS, TRAINER_FIELDS
from specc.templates.diagnostic import Diagnostic

from . import tree
from .construct import config_handle
from .errors import CompileError, refuse, span_of_class
from .facts import Assumption, Facts
from .flatten import Method
from .fold import Folder
from .value import Scope, Value, float_text, literal


@dataclass
class FieldText:
    name: str
    type: str
    value: str
    note: str = ""


@dataclass
class ConfigText:
    """One config class of the page."""

    name: str
    base: str | None
    fields: list[FieldText] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)


class PageConfig:
    """Collects what the final text reads of each config, and writes the classes."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.fields: set[str] = set()
        self.aliases: dict[str, str] = {}  # property -> the field that it comes to
        self._properties: dict[str, cst.FunctionDef] = {}

    def scan(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Note every field and property that these nodes read."""
        for node in nodes:
            for item in tree.walk(node):
                found = self.facts.config_reads.get(id(item))
                if found is not None:
                    self._read(self.facts.kinds.configs[found[0]], found[1])

    def scan_names(self, names: Iterable[str]) -> None:
        """Fields by name alone: what a function that is handed a whole config reads of it."""
        for config in self.facts.kinds.configs[:1]:
            known = {f.name for f in dataclasses.fields(config)}
            for name in names:
                static = inspect.getattr_static(type(config), name, None)
                if name in known or isinstance(static, property):
                    self._read(config, name)

    def _read(self, config: Any, name: str) -> None:
        static = inspect.getattr_static(type(config), name, None)
        if isinstance(static, property):
            self._property(config, name, static)
        elif name in {f.name for f in dataclasses.fields(config)}:
            self.fields.add(name)

    def _property(self, config: Any, name: str, static: property) -> None:
        if name in self._properties or name in self.aliases:
            return
        node = self._folded_property(config, name, static)
        alias = _returned_field(node, config)
        if alias is not None:
            self._read(config, alias)
            self.aliases[name] = self.aliases.get(alias, alias)
            return
        self._properties[name] = node
        self.scan([node])

    def _folded_property(self, config: Any, name: str, static: property) -> cst.FunctionDef:
        owner = next(c for c in type(config).__mro__ if name in c.__dict__)
        definition = self.facts.sources.class_def(owner)
        assert definition is not None, f"no source for {owner.__name__}"
        node = next(
            s for s in tree.body_of(definition) if isinstance(s, cst.FunctionDef) and s.name.value == name
        )
        folder = _PropertyFolder(self.facts, config, owner, node)
        return tree.with_body(node, folder.block(tree.body_of(node))).with_changes(leading_lines=[])

    # ---------------------------------------------------------------- writing

    def classes(self, names: dict[str, str], to_page: Any) -> list[ConfigText]:
        """The config classes; `to_page` writes a method's node as text."""
        configs = self.facts.kinds.configs
        if not configs:
            return []
        first = configs[0]
        self.fields |= {n for n in TRAINER_FIELDS if _holds(first, n)}
        main = ConfigText("Config", None)
        for f in dataclasses.fields(first):
            if f.name in self.fields:
                main.fields.append(self._field(first, f))
        main.asserts = self._asserts()
        main.properties = [to_page(self._unaliased(self._properties[n])) for n in self._property_order(first)]
        texts = [main]
        for index in range(1, len(configs)):
            other = configs[index]
            text = ConfigText(names[config_handle(index)], "Config")
            for f in dataclasses.fields(other):
                differs = getattr(other, f.name) != getattr(first, f.name, None)
                if f.name in self.fields and differs:
                    text.fields.append(self._field(other, f))
            for name in self._property_order(first):
                static = inspect.getattr_static(type(other), name)
                theirs = self._folded_property(other, name, static)
                if tree.code(theirs) != tree.code(self._properties[name]):
                    self.scan([theirs])
                    text.properties.append(to_page(self._unaliased(theirs)))
            texts.append(text)
        return texts

    def _unaliased(self, node: cst.FunctionDef) -> cst.FunctionDef:
        """A property's text with each property that comes to a field replaced by the field."""

        def swap(item: cst.CSTNode) -> cst.CSTNode | None:
            name = tree.self_attribute(item)
            if isinstance(item, cst.Attribute) and name in self.aliases:
                return item.with_changes(attr=cst.Name(self.aliases[name]))
            return None

        result: cst.FunctionDef = tree.replace(node, swap)
        return result

    def _property_order(self, config: Any) -> list[str]:
        order = [n for c in reversed(type(config).__mro__) for n in c.__dict__]
        return sorted(self._properties, key=order.index)

    def _field(self, config: Any, f: dataclasses.Field[Any]) -> FieldText:
        value = getattr(config, f.name)
        declared = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        if isinstance(value, int) and not isinstance(value, bool) and declared.startswith("float"):
            value = float(value)
        return FieldText(f.name, _type_text(value, declared), _value_text(value, f.name, type(config)), f.metadata.get("note", ""))

    def _asserts(self) -> list[str]:
        """What folding assumed of numbers that are still on the page, in the author's words."""
        lines: dict[str, None] = {}
        for assumption in self.facts.assumptions:
            if assumption.fields and assumption.fields <= self.fields:
                lines[_assert_text(assumption)] = None
        return list(lines)


class _PropertyFolder(Folder):
    """Folds a property of the config class: `self` is the config."""

    def __init__(self, facts: Facts, config: Any, owner: type, node: cst.FunctionDef) -> None:
        self.facts, self.constructor = facts, None
        self.method = Method(node, owner)
        self.loops = {}
        import sys

        self.scope = Scope(vars(sys.modules[owner.__module__]), {"self": Value(config)})

    def _modules(self, node: cst.BaseExpression) -> None:
        return None

    def _without_escape(self, node: Any) -> Any:
        if isinstance(node, cst.Attribute) and tree.self_attribute(node) is not None:
            self.facts.read_config(node, self._config(), node.attr.value)
            return node
        return super()._without_escape(node)

    def _config(self) -> Any:
        value = self.scope.names["self"]
        assert value is not None
        return value.object


def _returned_field(node: cst.FunctionDef, config: Any) -> str | None:
    """`x` for a property that comes to `return self.x`, a field or another property."""
    statements = [s for s in tree.body_of(node) if tree.docstring_of([s]) is None]
    if len(statements) == 1 and isinstance(statements[0], cst.SimpleStatementLine):
        small = statements[0].body[0]
        if isinstance(small, cst.Return) and small.value is not None:
            name = tree.self_attribute(small.value)
            if name is not None and (_holds(config, name) or isinstance(getattr(type(config), name, None), property)):
                return name
    return None


def _holds(config: Any, name: str) -> bool:
    return name in {f.name for f in dataclasses.fields(config)} and getattr(config, name) is not None


def _assert_text(assumption: Assumption) -> str:
    """The test over the config's own fields, turned round where it was false."""

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, cst.Attribute):
            base = tree.dotted(node.value)
            if base in ("config", "self.config", "model_config"):
                return node.with_changes(value=cst.Name("self"))
        return None

    test = tree.replace(assumption.test, swap).with_changes(lpar=[], rpar=[])
    text = tree.code(test)
    return f"assert {text}" if assumption.holds else f"assert not ({text})"


def _type_text(value: Any, declared: str) -> str:
    if value is None:
        return declared
    if isinstance(value, tuple):
        inner = sorted({type(v).__name__ for v in value}) or ["int"]
        return f"tuple[{' | '.join(inner)}, ...]"
    return type(value).__name__


def _value_text(value: Any, name: str, cls: type) -> str:
    if isinstance(value, float):
        return float_text(value)
    if value is None or isinstance(value, (bool, int, str, tuple)):
        return tree.code(literal(value))
    refuse(
        "SP403",
        f"the config's `{name}` is {value!r}, which can't be written on a page",
        span_of_class(cls),
        help="use a number, a boolean, a string or a tuple of those",
    )


def refuse_unread(facts: Facts, page: PageConfig) -> None:
    """A field that the user set and that nothing reads would be a silent flag. Raises CompileError with all of them."""
    errors: list[Diagnostic] = []
    read = facts.used_fields | page.fields | TRAINER_FIELDS
    for assumption in facts.assumptions:
        read |= assumption.fields
    for config in facts.kinds.configs:
        # A field without a default states a size that the user had to give.
        optional = {f.name for f in dataclasses.fields(config) if f.default is not dataclasses.MISSING}
        for name in sorted(getattr(config, "_set_fields", frozenset()) & optional):
            if name in read or name in LAUNCH_FIELDS:
                continue
            errors.append(
                Diagnostic(
                    "SP201",
                    f"the config sets `{name}`, and nothing in this model reads it",
                    "config",
                    getattr(config, "_span", None),
                    "",
                    help=f"leave `{name}` out, or use the module or the option that it belongs to",
                )
            )
    if errors:
        raise CompileError(tuple({e.message: e for e in errors}.values()))


