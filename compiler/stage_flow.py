"""The data flow of an author's forward around its layers: what has to run on which stage.

What reads no parameter and no activation runs on every stage. Before the layers, all else runs on
the first, and may hand on one value: what the layers are given. After them, all runs on the last.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass

from torch import Tensor, nn

from .stage_reads import (
    NoCut,
    assigned,
    base_name,
    called_with,
    is_own,
    keeps_parts,
    may_differ,
    names_bound,
    names_in,
    reads_activation,
)

_LABELS = "labels"  # only the last stage is given them


@dataclass(frozen=True)
class Flow:
    """Of the statements of a forward by number: ``on_first`` run on the first stage alone,
    ``layers`` is the one that runs the layers, from ``given`` to ``result``; ``argument`` is what
    it is given where that is no plain name. ``activation`` is the parameter by which later stages
    get it, None at the root. ``guard_last``: the statements after it are the last stage's.
    """

    on_first: tuple[int, ...]
    layers: int
    given: str
    result: str
    argument: str | None
    activation: str | None
    guard_last: bool


def cut_forward(
    forward: ast.FunctionDef,
    module: nn.Module,
    attribute: str,
    activation: str | None,
    *,
    is_list: bool,
) -> Flow:
    """Where the forward of ``module`` divides at its part ``attribute``: a list of layers, or what
    holds them. ``activation`` is the parameter that hands the layers' input in, None at the root.

    Raises NoCut where anything but that input crosses.
    """
    _refuse_state(forward, module)
    place = _place_of_layers(forward, attribute)
    before, layers, after = forward.body[:place], forward.body[place], forward.body[place + 1 :]
    _refuse_early(before)
    _refuse_unnamed(forward, [*before, layers])
    tainted = set() if activation is None else {activation}
    # What is handed in has the same shape on every stage from its last value on.
    settled = max((n for n, s in enumerate(before) if activation in assigned(s)), default=-1)
    local = names_bound(forward)
    on_first = []
    for number, statement in enumerate(before):
        shaped = {activation} if activation is not None and number > settled else frozenset[str]()
        if reads_activation(statement, module, tainted, shapes_of=shaped) or may_differ(
            statement, module, local
        ):
            tainted |= assigned(statement) | called_with(statement)
            on_first.append(number)
    _refuse_closures(before, tainted)
    call, result = _loop_call(layers) if is_list else _plain_call(layers, attribute)
    given = _given(call, layers, module, tainted)
    if is_list and not isinstance(given, ast.Name):
        raise NoCut("a layer is given more than what the one before it gave",
                    ast.unparse(layers))  # fmt: skip
    is_name = isinstance(given, ast.Name)
    name = given.id if isinstance(given, ast.Name) else result
    if is_list and name != result:
        raise NoCut("the loop over the layers does not hand each what the one before it gave",
                    ast.unparse(layers))  # fmt: skip
    if not reads_activation(given, module, tainted):
        raise NoCut("what the layers are given comes from no parameter of the first stage",
                    ast.unparse(layers))  # fmt: skip
    # What the layers are given beside their input may be filled by them: it is not read after.
    beside = [*call.args[1:], *(k.value for k in call.keywords)]
    _refuse_filled(after, beside, module)
    activations = tainted | names_in(beside) | ({activation} if activation else set())
    _refuse_crossing(after, activations - {result, "self"})
    return Flow(
        tuple(on_first),
        place,
        name,
        result,
        None if is_name else ast.unparse(given),
        activation,
        guard_last=not _only_returns(after, result),
    )


def _refuse_state(forward: ast.FunctionDef, module: nn.Module) -> None:
    """Nothing is kept on the module; its own methods, which may read any part, are not called."""
    owned = {id(n.value) for n in ast.walk(forward) if isinstance(n, ast.Attribute)}
    for node in ast.walk(forward):
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await):
            raise NoCut("forward is no plain function", ast.unparse(node))
        if isinstance(node, ast.Name) and node.id == "self" and id(node) not in owned:
            raise NoCut("forward hands its module on", "self")
        stores = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if stores and not isinstance(node, ast.Name) and base_name(node) == "self":
            raise NoCut(f"forward writes to {ast.unparse(node)}", ast.unparse(node))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            if isinstance(getattr(type(module), node.attr, None), property):
                raise NoCut(f"forward reads a property of its own, {node.attr}", ast.unparse(node))
            part = getattr(module, node.attr, None)
            if callable(part) and not isinstance(part, nn.Module):
                raise NoCut(f"forward uses a method of its own, {node.attr}", ast.unparse(node))
            if keeps_parts(part):
                raise NoCut(f"self.{node.attr} keeps parts of the model", ast.unparse(node))


def _place_of_layers(forward: ast.FunctionDef, attribute: str) -> int:
    places = [
        number
        for number, statement in enumerate(forward.body)
        if any(ast.unparse(n) == f"self.{attribute}" for n in ast.walk(statement))
    ]
    if len(places) != 1:
        how = "in several statements" if places else "nowhere"
        raise NoCut(f"forward names self.{attribute} {how}")
    return places[0]


def _refuse_early(before: Iterable[ast.stmt]) -> None:
    for statement in before:
        inside = {id(n) for f in ast.walk(statement) if isinstance(f, ast.FunctionDef)
                  for n in ast.walk(f)}  # fmt: skip
        for node in ast.walk(statement):
            if isinstance(node, ast.Return) and id(node) not in inside:
                raise NoCut("forward may return before the layers", ast.unparse(statement))
            if isinstance(node, ast.Name) and node.id == _LABELS:
                raise NoCut("the labels are read before the layers", ast.unparse(statement))


def _refuse_unnamed(forward: ast.FunctionDef, statements: Iterable[ast.stmt]) -> None:
    """The labels may be among what `*args` and `**kwargs` hold."""
    unnamed = {a.arg for a in (forward.args.vararg, forward.args.kwarg) if a is not None}
    for statement in statements:
        for name in sorted(names_in([statement]) & unnamed):
            raise NoCut(f"`{name}`, which may hold the labels, is read before the layers have run",
                        ast.unparse(statement))  # fmt: skip


def _refuse_closures(before: Iterable[ast.stmt], tainted: set[str]) -> None:
    """What a function inside of forward reads, it reads when it is called."""
    for statement in before:
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef | ast.Lambda) and names_in([node]) & tainted:
                raise NoCut("a function inside of forward reads what the first stage makes",
                            ast.unparse(statement))  # fmt: skip


def _refuse_filled(
    after: Iterable[ast.stmt], beside: Iterable[ast.expr], module: nn.Module
) -> None:
    """A list or the like, kept on the module, that the layers may fill."""
    handed = {n.attr for a in beside for n in ast.walk(a) if is_own(n) and _is_filled(module, n)}
    for statement in after:
        for node in ast.walk(statement):
            if is_own(node) and node.attr in handed:
                raise NoCut(
                    f"`self.{node.attr}` is given to the layers, which may fill it, and read after",
                    ast.unparse(statement),
                )


def _is_filled(module: nn.Module, node: ast.Attribute) -> bool:
    value = getattr(module, node.attr, None)
    return isinstance(value, list | dict | set) or (
        not isinstance(value, nn.Module | Tensor)
        and hasattr(value, "__dict__")
        and not (is_dataclass(value) and value.__dataclass_params__.frozen)  # type: ignore
    )


def _loop_call(statement: ast.stmt) -> tuple[ast.Call, str]:
    """`for layer in self.layers: x = layer(x, ...)`."""
    if (
        isinstance(statement, ast.For)
        and isinstance(statement.iter, ast.Attribute)
        and isinstance(statement.target, ast.Name)
        and len(statement.body) == 1
        and not statement.orelse
    ):
        found = _assigned_call(statement.body[0])
        if found and ast.unparse(found[0].func) == statement.target.id:
            return found
    raise NoCut("the layers are not run as `for layer in self.layers: x = layer(x, ...)`",
                ast.unparse(statement))  # fmt: skip


def _plain_call(statement: ast.stmt, attribute: str) -> tuple[ast.Call, str]:
    """`x = self.decoder(x, ...)`."""
    found = _assigned_call(statement)
    if found is None or ast.unparse(found[0].func) != f"self.{attribute}":
        raise NoCut("what holds the layers is not called as `x = self.decoder(x, ...)`",
                    ast.unparse(statement))  # fmt: skip
    return found


def _assigned_call(statement: ast.stmt) -> tuple[ast.Call, str] | None:
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Call)
    ):
        return statement.value, statement.targets[0].id
    return None


def _given(call: ast.Call, statement: ast.stmt, module: nn.Module, tainted: set[str]) -> ast.expr:
    """The first argument, which has to be the only activation."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not arguments:
        raise NoCut("the layers are given nothing", ast.unparse(statement))
    if any(isinstance(a, ast.Starred) for a in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        raise NoCut("what the layers are given is not written out", ast.unparse(statement))
    for argument in arguments:
        if any(isinstance(n, ast.Name) and n.id == _LABELS for n in ast.walk(argument)):
            raise NoCut("the labels are given to the layers", ast.unparse(statement))
    for argument in arguments[1:]:
        if reads_activation(argument, module, tainted):
            raise NoCut(
                f"`{ast.unparse(argument)}` is given to the layers beside what they work on",
                ast.unparse(statement),
            )
    return arguments[0]


def _refuse_crossing(after: Iterable[ast.stmt], tainted: set[str]) -> None:
    known = set(tainted)
    for statement in after:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
                raise NoCut(
                    f"`{node.id}`, made before the layers, is read after them",
                    ast.unparse(statement),
                )
        if isinstance(statement, ast.Assign):  # a new value under the old name
            known -= {t.id for t in statement.targets if isinstance(t, ast.Name)}


def _only_returns(after: list[ast.stmt], result: str) -> bool:
    return len(after) == 1 and ast.unparse(after[0]) == f"return {result}"
