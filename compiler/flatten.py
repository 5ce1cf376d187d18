"""Flatten: a class and the bases that are written out with it become one class.

The chain ends at the first base that the page imports (`nn.Module`, or a class of the runtime).
A method that another overrides and calls by `super()` stays, under a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NoReturn

import libcst as cst
from torch import nn

from . import tree
from .errors import refuse, span_of_class
from .source import SourceFile, Sources, is_foldable


@dataclass(frozen=True)
class Method:
    node: cst.FunctionDef
    owner: type  # the class that wrote it: whose module its names belong to


@dataclass
class Flat:
    """One class's text, its bases' methods with it."""

    cls: type[nn.Module]
    file: SourceFile
    node: cst.ClassDef
    chain: tuple[type, ...]  # the written-out classes, most derived first
    base: type  # what the class derives from on the page
    methods: dict[str, Method] = field(default_factory=dict)
    attributes: list[Any] = field(
        default_factory=list
    )  # statements of the class body that are not methods

    def init_of(self, owner: type) -> Method | None:
        """The first constructor in the chain from `owner` on."""
        for cls in self.chain[self.chain.index(owner) :] if owner in self.chain else ():
            if "__init__" in cls.__dict__:
                return self._inits[cls]
        return None

    def every_method(self) -> Iterator[Method]:
        """All methods, and the constructors of the bases."""
        yield from (m for name, m in self.methods.items() if name != "__init__")
        yield from self._inits.values()

    _inits: dict[type, Method] = field(default_factory=dict)


def flatten(cls: type[nn.Module], sources: Sources) -> Flat:
    """The flat form of `cls`. Refuses several bases, metaclasses, decorated classes and classes
    without source."""
    chain: list[type] = []
    base: type = cls
    while base is not nn.Module and is_foldable(base):
        _check(base, sources)
        chain.append(base)
        base = base.__bases__[0]
    node = sources.class_def(cls)
    file = sources.of(cls)
    assert node is not None and file is not None
    flat = Flat(cls, file, node, tuple(chain), base)
    taken: set[str] = set()
    own: dict[tuple[type, str], cst.FunctionDef] = {}
    for owner in chain:
        definition = sources.class_def(owner)
        assert definition is not None
        _collect(flat, owner, tree.body_of(definition), taken, own, sources)
    _follow_super(flat, own, sources)
    _refuse_class_level_reads(flat, sources)
    return flat


def _collect(
    flat: Flat,
    owner: type,
    statements: Sequence[Any],
    taken: set[str],
    written: dict[tuple[type, str], cst.FunctionDef],
    sources: Sources,
) -> None:
    own: set[str] = set()
    for position, statement in enumerate(statements):
        if isinstance(statement, cst.FunctionDef):
            name = statement.name.value
            written[owner, name] = statement
            if name == "__init__":
                flat._inits[owner] = Method(statement, owner)
            if any(
                tree.code(d.decorator).endswith((".setter", ".deleter"))
                for d in statement.decorators
            ):
                span = sources.span(statement, owner)
                refuse(
                    "SP310",
                    f"`{owner.__name__}.{name}` has a property setter, which hides a store",
                    span,
                    help="store the attribute by its name",
                )
            if name not in taken:
                flat.methods[name] = Method(statement, owner)
                own.add(name)
        elif position == 0 and tree.docstring_of([statement]) is not None:
            continue
        else:
            names = tree.stored_names(statement)
            if not names or not names <= taken:
                flat.attributes.append(statement)
                own |= names
    taken |= own


def _check(cls: type, sources: Sources) -> None:
    if len(cls.__bases__) != 1:
        names = ", ".join(f"`{b.__name__}`" for b in cls.__bases__)
        refuse(
            "SP301",
            f"`{cls.__name__}` has several bases ({names}); a class of a page has one",
            cls,
            help="derive it from one, and write what it takes from the others into it",
        )
    if type(cls) is not type:
        refuse(
            "SP302",
            f"`{cls.__name__}` has a metaclass, `{type(cls).__name__}`",
            cls,
            help="do in `__init__` what the metaclass does when an instance is made",
        )
    definition = sources.class_def(cls)
    if definition is None:
        refuse(
            "SP303",
            f"the source of `{cls.__name__}` is not at the top level of a file",
            cls,
            help="define the class in a module, not inside a function or an interactive session",
        )
    if definition.decorators:
        refuse(
            "SP304",
            f"`{cls.__name__}` has a class decorator, which may replace the class",
            cls,
            help="leave it out, and write what it adds into the class",
        )


# -------------------------------------------------------------------- super()


def _follow_super(
    flat: Flat, written: dict[tuple[type, str], cst.FunctionDef], sources: Sources
) -> None:
    """Give each method that `super().name` means a name of its own, and write that name instead."""
    own = flat.methods.get("__init__")
    pending: list[str | type] = [
        *flat.methods,
        *(cls for cls, init in flat._inits.items() if init is not own),
    ]
    while pending:
        key = pending.pop()
        method = flat.methods[key] if isinstance(key, str) else flat._inits[key]
        new = _Super(flat, method, written, sources)
        node = new.rewritten()
        if isinstance(key, str):
            flat.methods[key] = Method(node, method.owner)
        if method.node.name.value == "__init__":
            flat._inits[method.owner] = Method(node, method.owner)
        pending += new.added


class _Super:
    """The `super()` calls of one method."""

    def __init__(
        self,
        flat: Flat,
        method: Method,
        written: dict[tuple[type, str], cst.FunctionDef],
        sources: Sources,
    ) -> None:
        self.flat, self.method, self.written, self.sources = flat, method, written, sources
        self.added: list[str | type] = []

    def rewritten(self) -> cst.FunctionDef:
        result: cst.FunctionDef = tree.replace(self.method.node, self._swap)
        return result

    def _swap(self, node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, cst.Attribute) and _is_super(node.value):
            return self._attribute(node)
        if _is_super(node):
            self._refuse("uses `super()` other than to read a method from it", node)
        return None

    def _attribute(self, node: cst.Attribute) -> cst.BaseExpression:
        assert isinstance(node.value, cst.Call)
        name, owner = node.attr.value, self.method.owner
        named = [tree.dotted(a.value) for a in node.value.args]
        if named and named != [owner.__name__, "self"]:
            self._refuse(f"asks `{tree.code(node.value)}`, not `super()`", node)
        # `super(Class, self)` has a class's name in it, and the page may name the class anew.
        plain = node if not named else node.with_changes(value=node.value.with_changes(args=[]))
        if name == "__init__":
            if self.method.node.name.value != "__init__":
                self._refuse("runs its base's constructor outside its own", node)
            return plain
        for base in self.flat.chain[self.flat.chain.index(owner) + 1 :]:
            if name in base.__dict__:
                return cst.Attribute(
                    cst.Name(self._first_parameter()), cst.Name(self._alias(base, name, node))
                )
        return plain  # the imported base's, which is the base on the page too

    def _alias(self, base: type, name: str, node: cst.CSTNode) -> str:
        """The name on the page of a base's method that a derived class overrides."""
        definition = self.written.get((base, name))
        kinds = (FunctionType, staticmethod, classmethod)
        if definition is None or not isinstance(base.__dict__[name], kinds):
            self._refuse(f"reads `{name}` of its base, which is no plain method", node)
        words = re.sub(
            r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", base.__name__
        ).lower()
        alias = f"_{words.strip('_')}_{name.strip('_')}"
        known = self.flat.methods.get(alias)
        if known is None:
            new = definition.with_changes(name=cst.Name(alias))
            self.flat.methods[alias] = Method(new, base)
            self.added.append(alias)
        elif known.owner is not base:
            self._refuse(
                f"has a method `{alias}`, the name that `super().{name}` gets on the page", node
            )
        return alias

    def _first_parameter(self) -> str:
        return (
            self.method.node.params.params[0].name.value
            if self.method.node.params.params
            else "self"
        )

    def _refuse(self, what: str, node: cst.CSTNode) -> NoReturn:
        refuse(
            "SP322",
            f"`{self.method.owner.__name__}.{self.method.node.name.value}` {what}",
            self.sources.span(node, self.method.owner) or span_of_class(self.method.owner),
            help="call the base's method as `super().name(...)`",
        )


def _is_super(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value == "super"
    )


def _refuse_class_level_reads(flat: Flat, sources: Sources) -> None:
    """Statements of a class stand above its methods on the page: they can't read one."""
    for statement in flat.attributes:
        for name in tree.loaded_names(statement):
            if name in flat.methods:
                refuse(
                    "SP323",
                    f"a statement in the body of `{flat.cls.__name__}` reads the method `{name}`",
                    sources.span(statement, *flat.chain),
                    help="use a decorator, or define a method that calls it",
                )
