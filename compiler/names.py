"""Names: what the page's text reads from outside itself, and the line or the code that brings it."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import libcst as cst
from torch import nn

import specc.runtime

from . import tree
from .errors import refuse, span_of_class
from .facts import Facts
from .residual import Residual
from .source import is_foldable_module


@dataclass
class Needs:
    """Imports by the name that they bind, and the functions and constants that the page holds itself."""

    imports: dict[str, str] = field(default_factory=dict)
    copied: dict[str, Any] = field(default_factory=dict)  # name -> statement, in the order needed
    future: bool = False  # a class's annotations rely on `from __future__ import annotations`
    _objects: dict[str, Any] = field(default_factory=dict)

    def import_line(self, name: str, line: str, thing: Any, where: Residual | None) -> None:
        self._claim(name, thing, where)
        self.imports[name] = line

    def _claim(self, name: str, thing: Any, where: Residual | None) -> None:
        if name in self._objects and self._objects[name] is not thing and self._objects[name] != thing:
            refuse(
                "SP404",
                f"`{name}` means two things in the classes of this model, and a page has one set of names",
                span_of_class(where.kind.cls) if where else None,
                help=f"rename one of the two `{name}`",
            )
        self._objects[name] = thing


def collect(residuals: Iterable[Residual], facts: Facts, class_names: set[str]) -> Needs:
    """Everything that the classes read and do not define."""
    needs = Needs()
    for residual in residuals:
        for name in sorted(_free_names(residual)):
            if name in class_names or name in ("Config",) or _is_stand_in(name):
                continue
            _need(name, residual, facts, needs)
    return needs


def _is_stand_in(name: str) -> bool:
    return name.startswith(("_Kind", "_Config")) and name.endswith("_")


def _free_names(residual: Residual) -> set[str]:
    free: set[str] = set()
    attributes = set().union(*(tree.stored_names(a) for a in residual.attributes)) if residual.attributes else set()
    for node in residual.attributes:
        free |= set(tree.loaded_names(node))
    for function in residual.functions():
        free |= function_free_names(function)
    return {n for n in free if n not in attributes and not hasattr(builtins, n)}


def function_free_names(function: cst.FunctionDef) -> set[str]:
    """Names that a function reads and does not bind; its decorators, defaults and annotations count."""
    bound = tree.stored_names(function.body)
    for item in tree.walk(function):
        if isinstance(item, (cst.FunctionDef, cst.Lambda)):
            params = item.params
            every = [*params.posonly_params, *params.params, *params.kwonly_params]
            every += [p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)]
            bound |= {p.name.value for p in every}
            bound |= tree.stored_names(item.body)
        if isinstance(item, (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)):
            bound |= tree.stored_names(item)
    inside = {n for n in tree.loaded_names(function.body) if n not in bound}
    outside = [function.params, *function.decorators, *([function.returns] if function.returns else [])]
    return inside | {n for part in outside for n in tree.loaded_names(part)}


def _need(name: str, residual: Residual, facts: Facts, needs: Needs) -> None:
    if name in facts.imports:
        thing = facts.imports[name]
        needs.import_line(name, line_for(name, thing), thing, residual)
        return
    for owner in residual.flat.chain:
        module = sys.modules[owner.__module__]
        if name in vars(module):
            _need_from(name, module, facts, needs, residual)
            return
        file = facts.sources.of(owner)
        if file is not None and name in file.imports:  # under TYPE_CHECKING: a name for annotations alone
            needs.future = True
            needs.imports[name] = file.imports[name]
            return
    refuse(
        "SP405",
        f"`{residual.kind.cls.__name__}` reads `{name}`, which its module does not define",
        span_of_class(residual.kind.cls),
    )


def _need_from(name: str, module: ModuleType, facts: Facts, needs: Needs, residual: Residual) -> None:
    """A name as this module binds it: imported again, or copied where it is the author's own."""
    thing = vars(module)[name]
    if getattr(specc.runtime, name, None) is thing:
        needs.import_line(name, f"from specc.runtime import {name}", thing, residual)
        return
    path = getattr(module, "__file__", None)
    file = facts.sources.file(path) if path else None
    if file is not None and name in file.imports:
        line = file.imports[name]
        source = _module_imported(line, module)
        if isinstance(thing, ModuleType):
            if is_foldable_module(thing.__name__) and thing.__name__ != "__main__":
                refuse(
                    "SP406",
                    f"`{residual.kind.cls.__name__}` reads `{name}`, a module whose code the page would have to hold",
                    span_of_class(residual.kind.cls),
                    help=f"import the names that it uses: from {thing.__name__} import ...",
                )
            needs.import_line(name, line, thing, residual)
            return
        if source is None or not is_foldable_module(source):
            needs.import_line(name, line, thing, residual)
            return
        original = line.split(" import ")[1].split(" as ")[0].strip()
        if original != name:
            refuse(
                "SP406",
                f"`{name}` is `{original}` of `{source}` under another name, and the page holds its code",
                span_of_class(residual.kind.cls),
                help=f"import it as `{original}`",
            )
        _need_from(name, sys.modules[source], facts, needs, residual)
        return
    if isinstance(thing, type) and issubclass(thing, nn.Module):
        refuse(
            "SP407",
            f"`{residual.kind.cls.__name__}` reads the class `{name}` other than by building it",
            span_of_class(residual.kind.cls),
            help="ask about an option of the config instead of a class",
        )
    _copy(name, thing, module, facts, needs, residual)


def _copy(name: str, thing: Any, module: ModuleType, facts: Facts, needs: Needs, residual: Residual) -> None:
    if name in needs.copied:
        needs._claim(name, thing, residual)
        return
    needs._claim(name, thing, residual)
    file = facts.sources.file(str(module.__file__))
    node: Any = file.functions.get(name) or file.classes.get(name) or file.constants.get(name)
    if node is None:
        refuse(
            "SP408",
            f"`{residual.kind.cls.__name__}` reads `{name}`, whose source is not a plain statement of `{module.__name__}`",
            span_of_class(residual.kind.cls),
            help="define it at the top level of a file",
        )
    if isinstance(thing, FunctionType) and inspect.getclosurevars(thing).nonlocals:
        refuse("SP409", f"`{name}` is a closure, whose free variables have no source", span_of_class(residual.kind.cls))
    free = function_free_names(node) if isinstance(node, cst.FunctionDef) else set(tree.loaded_names(node))
    for other in sorted(free):
        if other == name or hasattr(builtins, other):
            continue
        if other in vars(module):
            _need_from(other, module, facts, needs, residual)
    needs.copied[name] = node


def line_for(name: str, thing: Any) -> str:
    """The import statement that binds a name to what the page does not hold itself."""
    if getattr(specc.runtime, name, None) is thing:
        return f"from specc.runtime import {name}"
    if thing is nn:
        return "from torch import nn"
    if isinstance(thing, ModuleType):
        return f"import {thing.__name__}"
    return f"from {thing.__module__} import {name}"


def _module_imported(line: str, module: ModuleType) -> str | None:
    """The full name of the module that a `from ... import` takes from."""
    if not line.startswith("from "):
        return None
    source = line[5:].split(" import ")[0]
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    package = (module.__package__ or "").split(".")
    base = package[: len(package) - dots + 1]
    return ".".join([*base, source.lstrip(".")] if source.lstrip(".") else base)
