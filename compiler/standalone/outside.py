"""Functions of torch that a program calls: what their signatures say."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import libcst as cst
import torch.overrides

from .. import tree
from ..value import is_literal, literal


def without_defaults(call: cst.Call, imports: dict[str, str]) -> cst.Call:
    """A call of another package's function without literals that are its defaults, last ones
    first.
    """
    dotted = tree.dotted(call.func)
    if dotted is None or any(a.star for a in call.args):
        return call
    first, *rest = dotted.split(".")
    if first not in imports or not rest:
        return call
    defaults = _defaults(imports[first], tuple(rest))
    args = list(call.args)
    kept: list[cst.Arg] = []
    for position, arg in enumerate(args):
        name = arg.keyword.value if arg.keyword is not None else None
        if name is None:
            later = args[position + 1 :]
            if position < len(defaults) and all(a.keyword is not None for a in later):
                name = list(defaults)[position]
        if name in defaults and _is(arg.value, defaults[name]):
            continue
        kept.append(arg)
    if len(kept) == len(args):
        return call
    kept = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in kept]
    return call.with_changes(args=kept)


def _is(node: cst.BaseExpression, default: Any) -> bool:
    return is_literal(default) and tree.code(node) == tree.code(literal(default))


@functools.cache
def _defaults(line: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of the function that an import line and names lead to, with their defaults."""
    words = line.replace(" as ", " ").split()
    try:
        if words[0] == "import":
            thing: Any = importlib.import_module(
                words[1] if " as " in line else words[1].split(".")[0]
            )
        else:
            thing = getattr(importlib.import_module(words[1]), words[3])
        for name in names:
            thing = getattr(thing, name)
    except (ImportError, AttributeError):
        return {}
    if not callable(thing) or isinstance(thing, type):
        return {}
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):  # of C++, for which torch keeps one in Python
        stand_in = torch.overrides.get_testing_overrides().get(thing)
        if stand_in is None:
            return {}
        found = inspect.signature(stand_in)
    return {p.name: p.default for p in found.parameters.values()}
