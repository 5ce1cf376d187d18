"""Helpers: the user's functions and classes that the classes of a model reach by name.

A page holds them as they are, so they are not folded; but what they store and read counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .flatten import Flat
from .source import Sources, is_foldable_module


@dataclass(frozen=True)
class Helper:
    name: str
    path: str  # of its file
    node: cst.FunctionDef | cst.ClassDef
    thing: Any = field(compare=False)


def reachable_helpers(
    flats: Iterable[Flat], sources: Sources, configs: tuple[type, ...]
) -> list[Helper]:
    """The functions and classes that the methods use, and those that these use in turn.

    Those of specc.templates are ours: they store nothing on a module.
    """
    found: dict[int, Helper] = {}
    pending = [
        (name, sys.modules[method.owner.__module__])
        for flat in flats
        for method in flat.every_method()
        for name in _used_names(method.node)
    ]
    pending += [
        (name, sys.modules[flat.cls.__module__])
        for flat in flats
        for statement in flat.attributes
        for name in tree.loaded_names(statement)
    ]
    seen: set[tuple[str, str]] = set()
    while pending:
        name, module = pending.pop()
        if (name, module.__name__) in seen:
            continue
        seen.add((name, module.__name__))
        thing = vars(module).get(name)
        if isinstance(thing, type) and (issubclass(thing, nn.Module) or issubclass(thing, configs)):
            continue
        for node, home in _definition(name, thing, module, sources):
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                found[id(node)] = Helper(name, str(home.__file__), node, thing)
            pending += [(other, home) for other in _used_names(node)]
    return list(found.values())


def _definition(
    name: str, thing: Any, module: ModuleType, sources: Sources
) -> Iterator[tuple[cst.CSTNode, ModuleType]]:
    """The statement that makes a user's function, class or table, and its module."""
    home = module
    if isinstance(thing, (FunctionType, type)):
        home = sys.modules.get(thing.__module__, module)
    path = getattr(home, "__file__", None)
    if path is None or home.__name__.startswith("specc.") or not is_foldable_module(home.__name__):
        return
    file = sources.file(path)
    for name_there in dict.fromkeys((name, getattr(thing, "__name__", name))):
        node = (
            file.functions.get(name_there)
            or file.classes.get(name_there)
            or file.constants.get(name_there)
        )
        if node is not None:
            yield node, home
            return


def _used_names(node: cst.CSTNode) -> Iterator[str]:
    """The names that code reads when it runs: not those of annotations, which run nothing."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, cst.Annotation):
            continue
        if isinstance(top, cst.Name):
            yield top.value
        stack.extend(tree.parts(top))
