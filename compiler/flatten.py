"""Flatten: a class and the bases that are written out with it become one class.

The chain ends at the first base that the page imports (`nn.Module`, or a class of the runtime).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .errors import refuse
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
    attributes: list[Any] = field(default_factory=list)  # statements of the class body that are not methods

    def init_of(self, owner: type) -> Method | None:
        """The first constructor in the chain from `owner` on."""
        for cls in self.chain[self.chain.index(owner) :] if owner in self.chain else ():
            if "__init__" in cls.__dict__:
                return self._inits[cls]
        return None

    _inits: dict[type, Method] = field(default_factory=dict)


def flatten(cls: type[nn.Module], sources: Sources) -> Flat:
    """The flat form of `cls`. Refuses several bases, metaclasses, decorated classes and classes without source."""
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
    for owner in chain:
        definition = sources.class_def(owner)
        assert definition is not None
        _collect(flat, owner, tree.body_of(definition), taken)
    return flat


def _collect(flat: Flat, owner: type, statements: Sequence[Any], taken: set[str]) -> None:
    own: set[str] = set()
    for position, statement in enumerate(statements):
        if isinstance(statement, cst.FunctionDef):
            name = statement.name.value
            if name == "__init__":
                flat._inits[owner] = Method(statement, owner)
            if any(tree.code(d.decorator).endswith((".setter", ".deleter")) for d in statement.decorators):
                refuse("SP310", f"`{owner.__name__}.{name}` has a property setter, which hides a store", owner)
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
        names = ", ".join(b.__name__ for b in cls.__bases__)
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
