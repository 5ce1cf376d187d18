"""Hazards: what a reader of the source could not follow, refused before anything is folded.

Folding is right only where every store and every read of an attribute stands in the text, and
where the text is what runs. Each check here names the line that breaks this.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import libcst as cst

from . import tree
from .errors import refuse
from .flatten import Flat, Method
from .helpers import Helper
from .imports import find_module, is_installed
from .source import Sources, is_foldable_module

# What hides a store, or a read, from a reader of the source.
HIDDEN = frozenset(
    {
        "setattr", "delattr", "vars", "exec", "eval", "globals", "locals",
        "__dict__", "__setattr__", "__delattr__", "__getattr__", "__getattribute__", "__setstate__",
    }
)  # fmt: skip
# Methods that run when a class is made or an instance is asked for: flattening would lose them.
OF_THE_CLASS = frozenset({"__new__", "__init_subclass__", "__class_getitem__", "__prepare__"})


def refuse_hazards(flat: Flat, sources: Sources) -> None:
    """Raise a CompileError for the first thing in a class's text that can't be followed."""
    for method in flat.every_method():
        _refuse_of_the_class(method, sources)
        _refuse_patched(method, sources)
        _refuse_hidden(
            f"{flat.cls.__name__}.{method.node.name.value}", method.node, sources, method.owner
        )
        _refuse_rebound_self(flat, method, sources)
        _refuse_mangled(flat, method, sources)
        _refuse_own_imports(method, sources)


def refuse_helper_hazards(helper: Helper, sources: Sources) -> None:
    """The same for a function or class that the page would hold because a class of the model uses
    it."""
    file = sources.file(helper.path)
    for node in _hidden(helper.node):
        refuse(
            "SP305",
            f"`{helper.name}` uses `{_word(node)}`, which hides what it stores or reads",
            file.span(node),
            help="write the attribute's name out",
        )
    for node in _globals(helper.node):
        refuse(
            "SP317",
            f"`{helper.name}` changes a name of its module",
            file.span(node),
            help=_NO_GLOBAL,
        )


_NO_GLOBAL = "keep what changes in an attribute or a buffer of the module that it belongs to"


def _refuse_hidden(what: str, function: cst.FunctionDef, sources: Sources, owner: type) -> None:
    for node in _hidden(function):
        refuse(
            "SP305",
            f"`{what}` uses `{_word(node)}`, which hides what it stores or reads",
            sources.span(node, owner),
            help="assign and read the attribute by its name",
        )
    for node in _globals(function):
        refuse(
            "SP317",
            f"`{what}` changes a name of its module",
            sources.span(node, owner),
            help=_NO_GLOBAL,
        )


def _hidden(root: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Nodes that name something hidden; a list of names that only labels an argument does not."""
    labels = {
        id(item.keyword) for item in tree.walk(root) if isinstance(item, cst.Arg) and item.keyword
    }
    for item in tree.walk(root):
        if id(item) not in labels and _word(item) in HIDDEN:
            yield item


def _word(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _globals(root: cst.CSTNode) -> Iterator[cst.CSTNode]:
    return (item for item in tree.walk(root) if isinstance(item, cst.Global))


def _refuse_of_the_class(method: Method, sources: Sources) -> None:
    name = method.node.name.value
    if name in OF_THE_CLASS:
        refuse(
            "SP318",
            f"`{method.owner.__name__}` has a `{name}`, which acts when a class or an instance "
            f"is made",
            sources.span(method.node, method.owner),
            help="do it in `__init__`",
        )


def _refuse_rebound_self(flat: Flat, method: Method, sources: Sources) -> None:
    for item in tree.walk(method.node.body):
        if (
            isinstance(
                item,
                (
                    cst.Assign,
                    cst.AnnAssign,
                    cst.AugAssign,
                    cst.For,
                    cst.NamedExpr,
                    cst.With,
                    cst.Del,
                ),
            )
            and "self" in tree.stored_names(item)
            and not isinstance(item, (cst.For, cst.With))
        ):
            refuse(
                "SP319",
                f"`{flat.cls.__name__}.{method.node.name.value}` gives `self` another value",
                sources.span(item, method.owner),
                help="use another name",
            )


def _refuse_mangled(flat: Flat, method: Method, sources: Sources) -> None:
    """`self.__x` is stored under a name that has the class's own name in it."""
    for item in tree.walk(method.node):
        name = item.attr.value if isinstance(item, cst.Attribute) else ""
        if isinstance(item, cst.FunctionDef) and item is method.node:
            name = item.name.value
        if name.startswith("__") and not name.endswith("__"):
            refuse(
                "SP320",
                f"`{name}` of `{method.owner.__name__}` is stored under a name with the class's "
                f"name in it, and a page "
                "may join classes or name them anew",
                sources.span(item, method.owner),
                help=f"call it `{name[1:]}`",
            )


def _refuse_own_imports(method: Method, sources: Sources) -> None:
    """An import inside a method runs on the page too, where the user's modules are not to be
    had."""
    for item in tree.walk(method.node):
        name = ""
        if isinstance(item, cst.ImportFrom):
            name = "." * len(item.relative) + (
                tree.dotted(item.module) or "" if item.module is not None else ""
            )
        elif isinstance(item, cst.Import):
            name = tree.dotted(item.names[0].name) or ""
        if name and (name.startswith(".") or _is_own(name, method)):
            refuse(
                "SP330",
                f"`{method.owner.__name__}.{method.node.name.value}` imports `{name}` when it runs",
                sources.span(item, method.owner),
                help="import it at the top of the file, so that the page can hold what is used",
            )


def _is_own(name: str, method: Method) -> bool:
    """Whether the module is the user's, also where nothing has imported it yet."""
    if name in sys.modules or name.partition(".")[0] in sys.stdlib_module_names:
        return is_foldable_module(name)
    file = inspect.getsourcefile(method.owner)
    found = find_module(name, [Path(file).parent] if file else [])
    return found is not None and not is_installed(found)


def _refuse_patched(method: Method, sources: Sources) -> None:
    """The method that runs must be the one in the file."""
    live = inspect.unwrap(_plain(method.owner.__dict__.get(method.node.name.value)))
    if not isinstance(live, FunctionType):
        return  # made by a decorator that says nothing of what it wraps
    file = sources.of(method.owner)
    span = None if file is None else file.span(method.node)
    if file is None or span is None:
        return
    first = live.__code__.co_firstlineno  # of the decorators, where there are some
    if (
        live.__code__.co_filename != file.path
        or not first <= span.line <= first + len(method.node.decorators) * 20
    ):
        refuse(
            "SP321",
            f"`{method.owner.__name__}.{method.node.name.value}` was replaced after the class "
            f"was made",
            span,
            label="this is not what runs",
            help="write it in the class, or derive a class of your own",
        )


def _plain(member: Any) -> Any:
    """The function in a method, a property or a static method."""
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return getattr(member, "func", member)  # functools.cached_property
