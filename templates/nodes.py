"""The kinds of node that a spec may hold, each as a ModuleSpec, and what a node names."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from .config import ModelParallelConfig
from .diagnostic import suggestion
from .findings import Findings, Placed, described, with_article
from .spec import ModuleSpec, Node, PreparedSpec, is_config


def as_spec(node: Node, place: Placed, found: Findings) -> ModuleSpec | None:
    """Any kind of node as a ModuleSpec; None, and a mistake, where it is none."""
    if isinstance(node, ModuleSpec):
        return node
    if isinstance(node, functools.partial):
        owner = getattr(node.func, "__self__", None)  # a partial of a class's builder method
        target = owner if isinstance(owner, type) else node.func
        if isinstance(target, type) and not node.args:
            params = {k: v for k, v in node.keywords.items() if k != "submodules"}
            children = node.keywords.get("submodules")
            return ModuleSpec(target, params, children, span=place.span)
        if isinstance(target, type):
            found.error(
                "SP110",
                f"a partial of `{target.__name__}` has arguments without a name",
                place,
                "name them, so that they can go with what the parent passes",
            )
            return None
    if callable(node) and not isinstance(node, nn.Module):
        return ModuleSpec(node, span=place.span)
    if is_pair(node):
        return ModuleSpec(node, span=place.span)
    if isinstance(node, nn.Module):
        found.error(
            "SP125",
            f"a built `{type(node).__name__}` stands where a spec is wanted",
            place,
            f"write ModuleSpec({type(node).__name__}, ...): its parent builds it",
        )
        return None
    found.error(
        "SP110",
        f"{with_article(type(node).__name__)} stands where a spec is wanted",
        place,
        'write a ModuleSpec, a class, a function, or a ("package.module", "Name") pair',
    )
    return None


def target_of(module: Any, place: Placed, found: Findings) -> Any:
    """The class or function that `module` names; None, and a mistake, where it names none."""
    if is_pair(module):
        return _imported(module, place, found)
    if module in (dict, list, tuple, set, str, int, float, bool, object):
        found.error(
            "SP103",
            f"`{module.__name__}` is no class of modules",
            place,
            "name a class derived from torch.nn.Module",
        )
        return None
    if isinstance(module, type) and issubclass(module, ModelParallelConfig):
        found.error(
            "SP103",
            f"`{module.__name__}` is a config, not a module",
            place,
            'pass a config by params={"config": ...}',
        )
        return None
    if isinstance(module, nn.Module) or not callable(module):
        found.error(
            "SP103",
            f"module is {described(module)}, which is no class",
            place,
            'name a class, a function, or a ("package.module", "Name") pair',
        )
        return None
    return module


def _imported(pair: tuple[str, str], place: Placed, found: Findings) -> Any:
    module_name, name = pair
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        found.error(
            "SP104",
            f"module `{module_name}` cannot be imported: {error}",
            place,
            "check its name, and that it is installed or on the path",
        )
        return None
    if not hasattr(module, name):
        public = [n for n in dir(module) if not n.startswith("_")]
        found.error(
            "SP105",
            f"module `{module_name}` has no `{name}`",
            place,
            suggestion(name, public, f"`{module_name}`"),
        )
        return None
    return getattr(module, name)


def is_pair(thing: Any) -> bool:
    """Whether this is a ("package.module", "Name") pair."""
    return isinstance(thing, tuple) and len(thing) == 2 and all(isinstance(t, str) for t in thing)


def may_be_node(value: Any) -> bool:
    """Whether a slot's value is a node, or a list of them; None is nothing."""
    if isinstance(value, list | tuple) and not is_pair(value):
        return any(may_be_node(v) for v in value)
    kinds = (ModuleSpec, type, functools.partial, types.FunctionType, nn.Module)
    return isinstance(value, kinds) or is_pair(value)


def submodules_class(target: type) -> type | None:
    """The dataclass that annotates the constructor's `submodules`, if one does.

    A class that extends a template and says nothing of its children takes what the template takes.
    """
    for cls in target.__mro__:
        if "__init__" in cls.__dict__ and (found := _annotated_class(cls)) is not None:
            return found
    return None


def _annotated_class(target: type) -> type | None:
    init: Callable[..., Any] = inspect.unwrap(target.__init__)  # type: ignore[misc]
    parameter = inspect.signature(init).parameters.get("submodules")
    if parameter is None:
        return None
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, init.__globals__)
        except Exception:  # a name that exists for type checkers only says nothing here
            return None
    options = typing.get_args(annotation) or (annotation,)
    for option in options:
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            return option
    return None


def tree(node: PreparedSpec) -> list[PreparedSpec]:
    """The node and every node under it, each once."""
    found: dict[int, PreparedSpec] = {}

    def visit(thing: Any) -> None:
        if isinstance(thing, type) or is_config(thing):
            return
        if isinstance(thing, PreparedSpec):
            if id(thing) not in found:
                found[id(thing)] = thing
                for part in (thing.params, thing.children, thing.submodules):
                    visit(part)
        elif isinstance(thing, Mapping):
            for value in thing.values():
                visit(value)
        elif isinstance(thing, list | tuple):
            for value in thing:
                visit(value)
        elif (
            dataclasses.is_dataclass(thing) and not isinstance(thing, type) and not is_config(thing)
        ):
            visit([getattr(thing, f.name) for f in dataclasses.fields(thing)])

    visit(node)
    return list(found.values())
