"""Why the head of a function or class of the page is what it is: parameters that came and went,
and which modules a class stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from torch import nn

from .. import tree
from ..kinds import Kind
from ..pipeline import Translated
from ..value import NOT_NONE, Value, is_spec
from .answer import Because
from .code_map import code_of
from .shown import shown


def why_parameters(traced: Translated, kind: Kind, name: str) -> Iterator[Because]:
    """The parameters that a method of a kind lost and gained."""
    residual = traced.residuals[kind]
    method = residual.flat.methods.get(name)
    made = residual.init if name == "__init__" else residual.methods.get(name)
    if name == "__init__":
        method = residual.flat.init_of(kind.cls)
    if method is None or made is None:
        return
    before = {p.name.value: p for p in tree.every_parameter(method.node)}
    after = {p.name.value: p for p in tree.every_parameter(made)}
    for parameter, node in before.items():
        if parameter not in after:
            why = _why_gone(traced, kind, name, parameter)
            yield Because(f"the parameter `{parameter}` is gone: {why}")
        elif node.default is not None and after[parameter].default is None:
            given = "every instance is given it" if name == "__init__" else "every call passes it"
            yield Because(f"`{parameter}` lost its default `{code_of(node.default)}`: {given}")
    for parameter in after:
        if parameter not in before:
            yield Because(
                f"the parameter `{parameter}` is new: it is handed on to a child that needs it"
            )


def _why_gone(traced: Translated, kind: Kind, method: str, parameter: str) -> str:
    if method == "__init__":
        given = [built.arguments.get(parameter) for built in kind.built]
        if any(_of_spec(value) for value in given):
            return "it hands on a part of the spec, which is built in place"
        known: Value | None = traced.facts.argument(kind, parameter)
    else:
        known = traced.facts.bindings[kind].values.get(parameter)
    if known is None or known.object is NOT_NONE or not _is_plain(known.object):
        return "once folded, nothing reads it"
    what = "every instance is given" if method == "__init__" else "every call on the page passes"
    return f"{what} {known.object!r}"


def _of_spec(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_of_spec(each) for each in value)
    return is_spec(value) or isinstance(value, nn.Module)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def why_class(traced: Translated, kind: Kind) -> Iterator[Because]:
    """Which modules of the model a class of the page is, and what became of its bases."""
    own = {id(module) for module in kind.instances}
    root = traced.facts.recording.root
    paths = [f"`{path}`" for path, module in root.named_modules() if id(module) in own and path]
    if root in kind.instances:
        yield Because("it is the class of the whole model")
    elif paths:
        few = paths if len(paths) <= 4 else paths[:3]
        more = f" and {len(paths) - 3} more" if len(paths) > 4 else ""
        yield Because(f"it is the class of {', '.join(few)}{more}")
    flat = traced.residuals[kind].flat
    if len(flat.chain) > 1:
        names = ", ".join(f"`{cls.__name__}`" for cls in flat.chain[1:])
        yield Because(f"written into it: its base{'s' if len(flat.chain) > 2 else ''} {names}")
    if traced.names[kind] != kind.cls.__name__:
        yield Because(
            f"`{kind.cls.__name__}` becomes several classes here; this one is called by what sets "
            "it apart"
        )


def why_built(
    traced: Translated, kind: Kind, path: str, first: int, last: int
) -> Iterator[Because]:
    """The children that lines of a constructor build, with the place of the spec that says so."""
    own = {id(module) for module in kind.instances}
    for built in traced.facts.recording.built.values():
        at = built.place
        if at is None or at.file != path or not first <= at.line <= last:
            continue
        if built.owner is not None and id(built.owner) in own and built.span is not None:
            where = f"{shown(built.span.file)}:{built.span.line}"
            yield Because(f"the spec has `{built.cls.__name__}` built here", where)


def documented(node: ast.AST | None) -> range:
    """The lines of a definition's docstring."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        first = body[0]
        string = first.value if isinstance(first, ast.Expr) else None
        if isinstance(string, ast.Constant) and isinstance(string.value, str):
            return range(first.lineno, (first.end_lineno or first.lineno) + 1)
    return range(0)
