"""Calls: which kinds a call on the page reaches, and calls rewritten when a signature shrinks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .construct import POSITIONAL
from .facts import Facts, elements
from .kinds import Kind
from .pattern import handle_of
from .residual import Residual

UNSEEN = Kind(-1)
"""Stands for whatever else a call may reach."""


def constructor_calls(residual: Residual, facts: Facts) -> Iterator[tuple[cst.Call, list[Kind]]]:
    """Calls that build children whose classes are on the page, with the kinds that each builds."""
    for node in residual.text():
        for item in tree.walk(node):
            if isinstance(item, cst.Call) and (kinds := kinds_called(item, facts)):
                yield item, kinds


def kinds_called(call: cst.Call, facts: Facts) -> list[Kind]:
    """The kinds that a constructor call of the page builds: none, one, or those of a pattern."""
    kind = facts.kinds.by_handle(call.func.value) if isinstance(call.func, cst.Name) else None
    if kind is not None:
        return [kind]
    handle = handle_of(call, facts)
    return [k for k in facts.patterns.get(handle or "", ()) if not isinstance(k, type)]


def forward_calls(residual: Residual, facts: Facts) -> Iterator[tuple[cst.Call, set[Kind]]]:
    """Calls of modules in the methods of a class: `self.a(...)`, `layer(...)` in a loop over
    `self.layers`.
    """
    for method in residual.functions():
        loops: dict[str, list[nn.Module]] = {}
        bound_by_loops: set[int] = set()
        for node in tree.walk(method):
            if isinstance(node, (cst.For, cst.CompFor)) and _bind_loop(node, residual, loops):
                bound_by_loops.add(id(node))
        other = _names_bound_otherwise(method, bound_by_loops) if loops else set()
        for node in tree.walk(method):
            if isinstance(node, cst.Call):
                modules = modules_of(node.func, residual, loops)
                kinds = {k for m in modules for k in facts.children_kinds(m)}
                if kinds and isinstance(node.func, cst.Name) and node.func.value in other:
                    kinds.add(UNSEEN)
                if kinds:
                    yield node, kinds


def _names_bound_otherwise(method: cst.FunctionDef, loops: set[int]) -> set[str]:
    """Names that anything but these loops over modules binds: a call of one may reach something
    else.
    """
    names = {
        p.name.value
        for f in tree.walk(method)
        if isinstance(f, cst.FunctionDef)
        for p in tree.every_parameter(f)
    }
    for node in tree.walk(method):
        if isinstance(node, (cst.For, cst.CompFor)) and id(node) in loops:
            continue
        if isinstance(
            node,
            (
                cst.For,
                cst.CompFor,
                cst.Assign,
                cst.AnnAssign,
                cst.AugAssign,
                cst.NamedExpr,
                cst.AsName,
            ),
        ):
            names |= tree.bound_names(node)
        elif isinstance(node, cst.Lambda):
            names |= {n.value for n in tree.walk(node.params) if isinstance(n, cst.Name)}
        elif isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            names.add(node.name.value)
    return names


def modules_of(
    node: cst.CSTNode, residual: Residual, loops: dict[str, list[nn.Module]]
) -> list[nn.Module]:
    if isinstance(node, cst.Name):
        return loops.get(node.value, [])
    if isinstance(node, cst.Subscript):
        return elements(modules_of(node.value, residual, loops), node) or []
    if not isinstance(node, cst.Attribute):
        return []
    name = tree.self_attribute(node)
    bases = residual.kind.instances if name is not None else modules_of(node.value, residual, loops)
    found = [m._modules.get(node.attr.value) for m in bases]
    return [m for m in found if m is not None]


def _bind_loop(node: Any, residual: Residual, loops: dict[str, list[nn.Module]]) -> bool:
    """Note what a loop's variable runs over, where that is modules; says whether it is."""
    over, target = node.iter, node.target
    if isinstance(over, cst.Call) and tree.dotted(over.func) == "enumerate" and over.args:
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            return False
        over, target = over.args[0].value, target.elements[1].value
    holders = modules_of(over, residual, loops) if isinstance(over, cst.Attribute) else []
    if not holders or not isinstance(target, cst.Name):
        return False
    # One name may run over several lists in one method.
    loops.setdefault(target.value, []).extend(child for h in holders for child in h.children())
    return True


def argument_names(call: cst.Call, names: list[str]) -> list[str | None]:
    """The parameter that each argument of a call stands for; None where that can't be said."""
    found: list[str | None] = []
    for position, arg in enumerate(call.args):
        if arg.star:
            found.append(None)
        elif arg.keyword is not None:
            found.append(arg.keyword.value.removeprefix(POSITIONAL))
        else:
            found.append(names[position] if position < len(names) else None)
    return found


def without(call: cst.Call, drop: set[int]) -> cst.Call:
    """The call without the arguments at these places; those after one that stood by position get
    names from the caller.
    """
    kept = [
        a.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        for i, a in enumerate(call.args)
        if i not in drop
    ]
    return call.with_changes(args=kept)


def shaped(call: cst.Call, names: list[str]) -> cst.Call:
    """The final form of a constructor call: by position as far as the author's order allows, else
    by name.
    """
    by_name = {
        a.keyword.value.removeprefix(POSITIONAL): a for a in call.args if a.keyword is not None
    }
    # The config and the mesh come first and need no names, whoever passes them.
    plain = {
        n
        for n, a in by_name.items()
        if a.keyword is not None and a.keyword.value.startswith(POSITIONAL)
    }
    plain |= {n for n in by_name if n in ("config", "mesh", "parallel_mesh", "model_config")}
    args: list[cst.Arg] = []
    in_order = True
    for name in names:
        if name not in by_name:
            in_order = False
            continue
        value, keyword = by_name[name].value, by_name[name].keyword
        if in_order and name in plain:
            args.append(cst.Arg(value))
        else:
            in_order = False
            equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
            if keyword is None or keyword.value != name:
                keyword = cst.Name(name)
            args.append(cst.Arg(value, keyword=keyword, equal=equal))
    return call.with_changes(args=args)


def drop_defaults(call: cst.Call, callee: Any, facts: Facts) -> cst.Call:
    """Without the arguments that folding turned into the callee's own defaults."""
    if not any(facts.is_folded(a.value) for a in call.args):
        return call
    try:
        parameters = inspect.signature(callee).parameters
    except (TypeError, ValueError):
        return call
    names = argument_names(call, list(parameters))
    drop: set[int] = set()
    for position in reversed(range(len(call.args))):
        arg, name = call.args[position], names[position]
        if name is None or name not in parameters or not facts.is_folded(arg.value):
            continue
        last = all(
            i in drop or call.args[i].keyword is not None
            for i in range(position + 1, len(call.args))
        )
        if arg.keyword is None and not last:
            continue
        value = _literal_value(arg.value)
        default = parameters[name].default
        if value is not _NO and type(value) is type(default) and value == default:
            drop.add(position)
    return without(call, drop) if drop else call


_NO = object()


def _literal_value(node: cst.BaseExpression) -> Any:
    if isinstance(node, cst.Name) and node.value in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[node.value]
    if isinstance(node, (cst.SimpleString, cst.Integer, cst.Float)):
        return node.evaluated_value
    return _NO
