"""Which layers of a model do the same, so that one of them has to run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from ..validate.layers import kinds


def layer_kinds(model: nn.Module, page: Mapping[str, Any]) -> dict[str, int]:
    """The layers that stand in lists, by path, numbered by kind: see `validate/layers.py`.

    A number that a layer has and no code of the page reads (which layer it is) makes no other kind.
    A layer that is the only one of its kind has a number of its own: it need not run again where a
    second forward calls it in the same way.
    """
    with _without(model, _names(page)):
        found = kinds(model, model)
    number = max(found.values(), default=-1)
    for path, parent in model.named_modules():
        if isinstance(parent, (nn.ModuleList, nn.Sequential)):
            for name, _ in parent.named_children():
                inner = f"{path}.{name}" if path else name
                if inner not in found:
                    number += 1
                    found[inner] = number
    return found


@contextmanager
def _without(model: nn.Module, read: set[str]) -> Iterator[None]:
    """Inside, modules of the page's own classes have no numbers whose names are not `read`."""
    taken: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for module in model.modules():
        held = vars(module)
        if not type(module).__module__.startswith(("torch.", "specc.")):
            unread = {n: v for n, v in held.items() if type(v) is int and n not in read}
            taken.append((held, unread))
    try:
        for held, unread in taken:
            for name in unread:
                del held[name]
        yield
    finally:
        for held, unread in taken:
            held.update(unread)


def _names(page: Mapping[str, Any]) -> set[str]:
    """All names and texts in the code of a page, constructors apart: what is not there is not read,
    be it by `self.x` or by `getattr(self, "x")`."""
    found: set[str] = set()
    own = page.get("__name__")
    for value in list(page.values()):
        if getattr(value, "__module__", None) != own:
            continue
        if isinstance(value, FunctionType):
            found |= _of_code(value.__code__)
        elif inspect.isclass(value):
            for name, member in vars(value).items():
                if name != "__init__":
                    found |= _of_member(member)
    return found


def _of_member(member: Any) -> set[str]:
    functions = [member, getattr(member, "__func__", None), getattr(member, "__wrapped__", None)]
    if isinstance(member, property):
        functions += [member.fget, member.fset]
    codes = [f.__code__ for f in functions if isinstance(f, FunctionType)]
    return {name for code in codes for name in _of_code(code)}


def _of_code(code: CodeType) -> set[str]:
    found = {*code.co_names, *code.co_varnames, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, str):
            found.add(constant)
        elif isinstance(constant, tuple):
            found |= {text for text in constant if isinstance(text, str)}
        elif isinstance(constant, CodeType):
            found |= _of_code(constant)
    return found
