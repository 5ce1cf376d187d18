"""Exposure: which attributes and which calls of a class somebody else's code may reach.

The folder reads a class's own text. What another class, a helper, or a base that the page imports
does to its instances is found here, by name: an attribute that is stored by that name anywhere else
is no fact, and one that may be read there is not pruned.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .flatten import Flat, Method
from .helpers import Helper

# Methods of `nn.Module` that reach the modules inside, which their caller may then call.
_REACHING = frozenset(
    {
        "children", "modules", "named_children", "named_modules", "get_submodule", "_modules",
        "apply", "__call__", "forward", "_call_impl",
    }
)  # fmt: skip
# Methods of `nn.ModuleList` and the like by which a constructor adds to them.
ADDING = frozenset({"append", "extend", "insert", "add_module", "register_module", "update"})
_GETTERS = frozenset({"attrgetter", "methodcaller", "getmembers", "dir", "getattr_static"})


class Exposure:
    def __init__(self, flats: Iterable[Flat], helpers: Iterable[Helper]) -> None:
        self._stored: set[str] = set()  # attributes stored on anything but `self`
        self.outside_reads: set[str] = set()  # attribute names and strings in helpers
        self.any_read = False  # an attribute is read by a name that is not in the text
        self.properties: set[str] = set()  # names of properties: reading one runs code
        self._exposed: dict[type, bool] = {}
        for flat in flats:
            for method in flat.every_method():
                self._stored |= _foreign_stores(method.node)
                names = vars(sys.modules[method.owner.__module__])
                self.any_read |= any(_reads_any_name(n, names) for n in tree.walk(method.node))
                if any(
                    (tree.dotted(d.decorator) or "").endswith("property")
                    for d in method.node.decorators
                ):
                    self.properties.add(method.node.name.value)
        for helper in helpers:
            self._of_helper(helper)

    def may_be_stored(self, flat: Flat, name: str) -> bool:
        """Whether code other than the class's own text may store `name` on its instances."""
        return name in self._stored or self.hands_on_self(flat) or name in names_of_base(flat.base)

    def hands_on_self(self, flat: Flat) -> bool:
        """Whether a method hands `self` to code that may do anything with it."""
        if flat.cls not in self._exposed:
            self._exposed[flat.cls] = any(
                True for m in flat.every_method() for _ in _bare_self(m.node, m)
            )
        return self._exposed[flat.cls]

    def calls_itself(self, flat: Flat) -> bool:
        """Whether its forward may be called other than by the calls of it in its owners' text."""
        own = flat.methods.get("forward")
        if self.hands_on_self(flat) or "__call__" in flat.methods or "forward" in self._stored:
            return True
        if own is not None and own.node.decorators:
            return True
        return bool(_own_attributes(flat) & {"forward", "__call__", "_call_impl"})

    def hands_on_children(self, flat: Flat) -> bool:
        """Whether its children may be called other than by the calls of them in its text."""
        reached = _own_attributes(flat) & _REACHING - set(flat.methods)
        return bool(reached) or self.hands_on_self(flat)

    def _of_helper(self, helper: Helper) -> None:
        if isinstance(helper.node, cst.FunctionDef):
            self._stored |= {a.attr.value for a in tree.stored_attributes(helper.node)}
        else:  # what the methods of a class store on `self` is on its own instances
            self._stored |= _foreign_stores(helper.node)
        for item in tree.walk(helper.node):
            if isinstance(item, cst.Attribute):
                self.outside_reads.add(item.attr.value)
            elif isinstance(item, cst.SimpleString):
                self.outside_reads.add(str(item.raw_value))
            self.any_read |= _reads_any_name(item, {})


def _own_attributes(flat: Flat) -> set[str]:
    """Every name that a class reads from or stores on `self`."""
    names = (tree.self_attribute(a) for m in flat.every_method() for a in tree.walk(m.node))
    return {name for name in names if name is not None}


@functools.cache
def names_of_base(base: type) -> frozenset[str]:
    """Every name in the code of an imported base and its bases, `nn.Module` apart."""
    names: set[str] = set()
    for cls in base.__mro__:
        if cls in (nn.Module, object):
            continue
        for member in vars(cls).values():
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(member, FunctionType):
                names |= _names_of_code(member.__code__)
    return frozenset(names)


def _names_of_code(code: CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    strings = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    return set(code.co_names) | strings | {n for c in inner for n in _names_of_code(c)}


def _foreign_stores(node: cst.CSTNode) -> set[str]:
    return {a.attr.value for a in tree.stored_attributes(node) if tree.self_attribute(a) is None}


def _reads_any_name(node: cst.CSTNode, names: Mapping[str, Any]) -> bool:
    """Whether a call reads an attribute whose name is not written in it, of anything but a
    library."""
    if not isinstance(node, cst.Call):
        return False
    name = (tree.dotted(node.func) or "").rpartition(".")[2]
    if name in _GETTERS:
        return True
    if name not in ("getattr", "hasattr"):
        return False
    if node.args and isinstance(names.get(tree.dotted(node.args[0].value) or ""), ModuleType):
        return False  # getattr(F, config.activation)
    return len(node.args) < 2 or not isinstance(node.args[1].value, cst.SimpleString)


def _bare_self(node: cst.CSTNode, method: Method) -> Iterator[cst.CSTNode]:
    """Every place where `self` itself is a value, and not only looked into."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, cst.Name):
            if top.value == "self":
                yield top
            continue
        children: Iterable[cst.CSTNode] = tree.parts(top)
        if isinstance(top, cst.Attribute):
            children = [] if isinstance(top.value, cst.Name) else [top.value]
        elif isinstance(top, cst.Param):
            children = [p for p in (top.annotation, top.default) if p is not None]
        elif isinstance(top, cst.Arg):
            children = [top.value]
        elif isinstance(top, cst.Call) and _only_looks(top.func, method):
            children = [top.func, *(a for a in top.args if not _is_self(a.value))]
        stack.extend(children)


def _is_self(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def _only_looks(func: cst.BaseExpression, method: Method) -> bool:
    """Whether what is called stores nothing on a module that it is handed: a few builtins, and the
    runtime."""
    first, *rest = (tree.dotted(func) or "").split(".")
    if tree.dotted(func) == "nn.Module.__init__" or tree.dotted(func) == "torch.nn.Module.__init__":
        return True
    thing: Any = vars(sys.modules[method.owner.__module__]).get(
        first, getattr(builtins, first, None)
    )
    for name in rest:
        thing = getattr(thing, name, None)
    if any(thing is known for known in (isinstance, hasattr, getattr, type, id, super)):
        return True
    return str(getattr(thing, "__module__", "")).startswith("specc.runtime")
