"""Prune: what folding left unread goes, to a fixed point.

Only what folding dirtied: a name of the user's own class that nobody read before is left alone.
Never a call: an assignment goes only where its right side is names, attributes and operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import libcst as cst
import torch
from torch import nn

from . import tree
from .calls import argument_names, constructor_calls, forward_calls, kinds_called, without
from .construct import POSITIONAL
from .exposure import names_of_base
from .facts import Facts
from .flatten import Flat
from .inline import inline_adjacent
from .kinds import Kind
from .pattern import handle_of, without_number
from .residual import Residual


def prune(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Drop unread attributes, locals, private methods and parameters from every class, in place."""
    changed = True
    while changed:
        changed = False
        foreign = _foreign_reads(residuals.values(), facts) | facts.exposure.outside_reads
        for residual in residuals.values():
            changed |= _prune_class(residual, facts, foreign)
        changed |= _prune_constructors(residuals, facts)
        changed |= _prune_forwards(residuals, facts)


# -------------------------------------------------------------------- inside one class


def _prune_class(residual: Residual, facts: Facts, foreign: set[str]) -> bool:
    before = [id(f) for f in residual.functions()]
    own_reads, strings = _own_reads(residual)
    for name in list(residual.methods):
        private = name.startswith("_") and not name.startswith("__")
        if (
            private
            and name not in own_reads | strings | foreign
            and _may_drop(residual, f"self.{name}")
        ):
            del residual.methods[name]
    if residual.init is not None:
        residual.init = _clean(residual.init, residual, facts, own_reads | strings | foreign)
    for name, method in residual.methods.items():
        residual.methods[name] = _clean(method, residual, facts, own_reads | strings | foreign)
    return before != [id(f) for f in residual.functions()]


def _clean(
    function: cst.FunctionDef, residual: Residual, facts: Facts, reads: set[str]
) -> cst.FunctionDef:
    function = inline_adjacent(function, facts)
    loads = set(tree.loaded_names(function.body))

    def keep(statement: Any) -> bool:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return True
        small = statement.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
        elif isinstance(small, cst.AnnAssign):
            target = small.target
        else:
            return True
        if small.value is None or _runs_property(small.value, facts):
            return True
        if not (tree.is_pure(small.value) or _only_computes(small.value, residual)):
            return True
        if isinstance(target, cst.Name):
            return target.value in loads or not _may_drop(
                residual, target.value, function.name.value
            )
        name = tree.self_attribute(target)
        if (
            name is None
            or name in reads
            or function.name.value != "__init__"
            or _is_read_elsewhere(name, residual, facts)
        ):
            return True
        return _holds_state(residual, name) or not _may_drop(residual, f"self.{name}")

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            kept = [change(s) for s in _filtered(node.body, keep, facts)]
            if len(kept) == len(node.body) and all(
                a is b for a, b in zip(kept, node.body, strict=True)
            ):
                return node
            return node.with_changes(body=kept or [cst.SimpleStatementLine([cst.Pass()])])
        if isinstance(node, (cst.For, cst.ListComp, cst.GeneratorExp)):
            node = _unused_loop_name(node, residual, facts)
        if isinstance(node, cst.BaseExpression) and not isinstance(
            node, (cst.ListComp, cst.Call, cst.GeneratorExp)
        ):
            return node
        return tree.rebuild(node, change)

    result: cst.FunctionDef = tree.rebuild(function, change)
    return result


def _runs_property(value: cst.BaseExpression, facts: Facts) -> bool:
    """Whether an expression reads a property of one of the classes, which may do something."""
    return any(
        isinstance(i, cst.Attribute) and i.attr.value in facts.exposure.properties
        for i in tree.walk(value)
    )


def _is_read_elsewhere(name: str, residual: Residual, facts: Facts) -> bool:
    """Whether code that is not on the page may read an attribute: a base's, or one that goes by
    other names.
    """
    exposure = facts.exposure
    return (
        exposure.any_read
        or exposure.hands_on_self(residual.flat)
        or name in names_of_base(residual.flat.base)
    )


# Functions of the runtime that a template calls for their value alone.
_COMPUTES = frozenset({"Positions.of", "Positions.of_hidden", "rotary_tables"})


def _only_computes(value: cst.BaseExpression, residual: Residual) -> bool:
    """Whether a template's call is known to do nothing but compute: the one kind of call that may
    go.
    """
    if (
        not residual.ours
        or not isinstance(value, cst.Call)
        or tree.dotted(value.func) not in _COMPUTES
    ):
        return False
    return all(tree.is_pure(a.value) and not a.star for a in value.args)


def _filtered(statements: Iterable[Any], keep: Any, facts: Facts) -> list[Any]:
    """The statements to keep; blank lines above one that goes stay, its comments go with it."""
    out: list[Any] = []
    blank: list[cst.EmptyLine] = []
    for statement in statements:
        if keep(statement):
            lines = getattr(statement, "leading_lines", None)
            if blank and lines is not None and not any(line.comment is None for line in lines):
                statement = statement.with_changes(leading_lines=[*blank, *lines])
            blank = []
            out.append(statement)
        else:
            blank = blank or [line for line in statement.leading_lines if line.comment is None][:1]
            if out:
                facts.removed_after[id(out[-1])] = out[-1]
    return out


def _unused_loop_name(node: Any, residual: Residual, facts: Facts) -> Any:
    """`for _ in ...` where folding took away every reader of the loop's variable."""
    clause = node if isinstance(node, cst.For) else node.for_in
    inside = node.body if isinstance(node, cst.For) else node.elt
    loads = set(tree.loaded_names(inside))
    if not isinstance(node, cst.For):
        if node.for_in.inner_for_in is not None:
            return node
        loads |= {n for i in node.for_in.ifs for n in tree.loaded_names(i)}
    target = clause.target
    if isinstance(target, cst.Name):
        if target.value in loads or target.value == "_" or not _may_drop(residual, target.value):
            return node
        clause = clause.with_changes(target=cst.Name("_"))
        return clause if isinstance(node, cst.For) else node.with_changes(for_in=clause)
    if isinstance(node, cst.ListComp) and (alone := without_number(node, loads, facts)) is not None:
        return node.with_changes(for_in=alone)
    return node


def _holds_state(residual: Residual, name: str) -> bool:
    """Whether an attribute is a module, a parameter or a tensor: assigning it is what makes it the
    model's.
    """
    for module in residual.kind.instances:
        if name in module._modules or name in module._parameters or name in module._buffers:
            return True
        if isinstance(module.__dict__.get(name), (torch.Tensor, nn.Module)):
            return True
    return False


def _own_reads(residual: Residual) -> tuple[set[str], set[str]]:
    """Attributes that a class reads from `self`, and every string in it (`getattr(self, "x")` reads
    x).
    """
    reads: set[str] = set()
    strings: set[str] = set()
    for node in residual.text():
        stored = {id(a) for a in tree.stored_attributes(node)}
        augmented = {id(i.target) for i in tree.walk(node) if isinstance(i, cst.AugAssign)}
        for item in tree.walk(node):
            if (
                isinstance(item, cst.Attribute)
                and tree.self_attribute(item)
                and (id(item) not in stored or id(item) in augmented)
            ):
                reads.add(item.attr.value)
            elif isinstance(item, cst.SimpleString):
                strings.add(item.raw_value)
    return reads, strings


def _foreign_reads(residuals: Iterable[Residual], facts: Facts) -> set[str]:
    """Attribute names read from anything but `self` and a config, anywhere on the page."""
    return {
        item.attr.value
        for residual in residuals
        for node in residual.text()
        for item in tree.walk(node)
        if isinstance(item, cst.Attribute)
        and tree.self_attribute(item) is None
        and id(item) not in facts.config_reads
    }


def _may_drop(residual: Residual, name: str, function: str | None = None) -> bool:
    """Whether a name that nothing reads is ours to take out: our template's, or read before
    folding.
    """
    if residual.ours:
        return True
    if name.startswith("self.") and name[5:] in _inherited(residual.flat):
        return True
    for method in residual.flat.methods.values():
        for item in tree.walk_loads(method.node):
            if isinstance(item, cst.Name) and item.value == name:
                return True
            if (
                isinstance(item, cst.Attribute)
                and tree.dotted(item) == name
                and not _is_store(item, method.node)
            ):
                return True
    return False


def _is_store(item: cst.Attribute, method: cst.FunctionDef) -> bool:
    return any(a is item for a in tree.stored_attributes(method))


def _inherited(flat: Flat) -> set[str]:
    """Attributes that one of our own bases stores for the user's class."""
    return {
        attribute.attr.value
        for owner, method in flat._inits.items()
        if owner.__module__.startswith("specc.templates")
        for attribute in tree.stored_attributes(method.node)
        if tree.self_attribute(attribute)
    }


# -------------------------------------------------------------------- parameters, with their
# arguments


def _prune_constructors(residuals: dict[Kind, Residual], facts: Facts) -> bool:
    drop: dict[Kind, set[str]] = {}
    for kind, residual in residuals.items():
        if residual.init is None:
            continue
        init = residual.init
        unread = {
            p.name.value
            for p in residual.parameters()
            if not _read_before_written(p.name.value, init)
            and (residual.ours or kind is not facts.kinds.root or _may_drop(residual, p.name.value))
        }
        if unread:
            drop[kind] = unread
    _keep_what_calls_need(residuals, drop, facts)
    if not any(drop.values()):
        return False
    for kind, names in drop.items():
        residuals[kind].init = _without_params(residuals[kind].init, names)

    def shrink(call: cst.Call) -> cst.Call:
        names = {n for kind in kinds_called(call, facts) for n in drop.get(kind, ())}
        places = {i for i, a in enumerate(call.args) if _plain_name(a) in names}
        return without(call, places) if places else call

    for residual in residuals.values():
        rewrite_calls(residual, shrink)
    return True


def _keep_what_calls_need(
    residuals: dict[Kind, Residual], drop: dict[Kind, set[str]], facts: Facts
) -> None:
    """Take back a parameter whose argument acts, or that another class of its call needs."""
    takes = {kind: {p.name.value for p in r.parameters()} for kind, r in residuals.items()}
    calls = [pair for r in residuals.values() for pair in constructor_calls(r, facts)]
    settled = False
    while not settled:
        settled = True
        for call, kinds in calls:
            imported = _builds_imported(call, kinds, facts)
            for arg in call.args:
                name = _plain_name(arg)
                needed = imported or not tree.is_pure(arg.value)
                needed |= any(name in takes[k] - drop.get(k, set()) for k in kinds)
                for kind in kinds if needed else ():
                    if name in drop.get(kind, ()):
                        drop[kind].discard(name)
                        settled = False


def _builds_imported(call: cst.Call, kinds: list[Kind], facts: Facts) -> bool:
    """Whether a pattern's call also builds a class of the runtime's."""
    return len(facts.patterns.get(handle_of(call, facts) or "", ())) > len(kinds)


def _plain_name(arg: cst.Arg) -> str:
    """The parameter that an argument of a constructor call, not shaped yet, is for."""
    return "" if arg.keyword is None else arg.keyword.value.removeprefix(POSITIONAL)


def _prune_forwards(residuals: dict[Kind, Residual], facts: Facts) -> bool:
    unread: dict[Kind, set[str]] = {}
    for kind, residual in residuals.items():
        forward = residual.methods.get("forward")
        binding = facts.bindings[kind]
        if forward is None or kind is facts.kinds.root or not binding.called or binding.escaped:
            continue
        names = {
            p.name.value
            for p in forward.params.params[1:]
            if not _read_before_written(p.name.value, forward)
        }
        names = {
            n
            for n in names
            if residual.ours or _may_drop(residual, n, "forward") or n in binding.values
        }
        if names:
            unread[kind] = names
    found = []
    for call, kinds in (pair for r in residuals.values() for pair in forward_calls(r, facts)):
        if kinds <= residuals.keys():
            found.append((call, kinds))
        else:  # it may also reach a class of the runtime, whose parameters are not ours to drop
            for kind in kinds:
                unread.pop(kind, None)
    settled = False
    while (
        not settled
    ):  # an argument goes only where every class that the call may reach does without it
        settled = True
        for call, kinds in found:
            for position, arg in enumerate(call.args):
                meant = {
                    k: argument_names(call, _forward_names(residuals[k]))[position] for k in kinds
                }
                droppable = tree.is_pure(arg.value)  # it runs nothing that could matter
                if droppable and all(
                    n is not None and n in unread.get(k, ()) for k, n in meant.items()
                ):
                    continue
                for kind, name in meant.items():
                    if name in unread.get(kind, ()):
                        unread[kind].discard(name or "")
                        settled = False
    if not any(unread.values()):
        return False
    swaps: dict[int, cst.Call] = {}
    for call, kinds in found:
        names_of = [argument_names(call, _forward_names(residuals[k])) for k in kinds]
        sets = [unread.get(k, set()) for k in kinds]
        places = {
            i
            for i in range(len(call.args))
            if all(n[i] in s for n, s in zip(names_of, sets, strict=True))
        }
        if places:
            swaps[id(call)] = without(call, places)
    for residual in residuals.values():
        rewrite_calls(residual, lambda c: swaps.get(id(c), c))
    for kind, names in unread.items():
        residuals[kind].methods["forward"] = _without_params(
            residuals[kind].methods["forward"], names
        )
    return True


def _read_before_written(name: str, function: cst.FunctionDef) -> bool:
    """Whether a function may read what was passed for a parameter."""
    for statement in tree.body_of(function):
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if name in set(tree.loaded_names(small)) or isinstance(
                    small, (cst.AugAssign, cst.Del)
                ):
                    if name in set(tree.loaded_names(small)) or name in tree.stored_names(small):
                        return True
                elif isinstance(small, (cst.Assign, cst.AnnAssign)) and name in tree.stored_names(
                    small
                ):
                    return False
        elif name in set(tree.loaded_names(statement)):
            return True
    return False


def _forward_names(residual: Residual) -> list[str]:
    forward = residual.methods.get("forward")
    return [] if forward is None else [p.name.value for p in forward.params.params[1:]]


def _without_params(function: Any, names: set[str]) -> Any:
    params = function.params
    kwonly = [p for p in params.kwonly_params if p.name.value not in names]
    star = (
        params.star_arg
        if kwonly or isinstance(params.star_arg, cst.Param)
        else cst.MaybeSentinel.DEFAULT
    )
    return function.with_changes(
        params=params.with_changes(
            params=[p for p in params.params if p.name.value not in names],
            kwonly_params=kwonly,
            star_arg=star,
        )
    )


def rewrite_calls(residual: Residual, change: Any) -> None:
    """Apply `change` to every call of a class, inner calls first; `change` sees the nodes of the
    present text.
    """

    def visit(node: Any) -> Any:
        new = change(node) if isinstance(node, cst.Call) else node
        if new is not node:
            return tree.rebuild(new, visit)
        return tree.rebuild(node, visit)

    if residual.init is not None:
        residual.init = visit(residual.init)
    for name, method in residual.methods.items():
        residual.methods[name] = visit(method)
