"""The data flow of an author's forward around its layers: what has to run on which stage.

What reads no parameter and no activation runs on every stage. Before the layers, all else runs on
the first, and may hand on one value: what the layers are given. After them, all runs on the last.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

_OF_SHAPE = frozenset({"shape", "size", "device", "dtype", "ndim", "dim"})  # alike on all stages
_LABELS = "labels"  # only the last stage is given them
# Calls of torch that are alike on every stage where their arguments are: no draw, no state.
_PLAIN_ROOTS = frozenset({"torch", "F", "Positions", "math"})
_PLAIN_NAMES = frozenset(
    {"range", "len", "int", "float", "bool", "min", "max", "tuple", "list", "isinstance", "zip"}
)
_DRAWS = re.compile(r"rand|normal|bernoulli|multinomial|poisson|dropout|uniform|exponential|manual")


def holds_parameters(module: nn.Module, attribute: str) -> bool:
    """Whether an attribute of the module is a parameter, or a part that has any."""
    part = getattr(module, attribute, None)
    if isinstance(part, nn.Module):
        return any(True for _ in part.parameters())
    return isinstance(part, nn.Parameter)


class NoCut(Exception):
    """A forward cannot be cut; ``statement`` is the one in the way, as it stands on the page."""

    def __init__(self, reason: str, statement: str | None = None) -> None:
        super().__init__(reason)
        self.statement = statement


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
    tainted = set() if activation is None else {activation}
    shaped = set(tainted)  # of these every stage has the shape, until they get another value
    on_first = []
    for number, statement in enumerate(before):
        if _reads_activation(statement, module, tainted, shapes_of=shaped) or _may_differ(
            statement
        ):
            tainted |= _assigned(statement) | _called_with(statement)
            shaped -= tainted
            on_first.append(number)
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
    if not _reads_activation(given, module, tainted):
        raise NoCut("what the layers are given comes from no parameter of the first stage",
                    ast.unparse(layers))  # fmt: skip
    # What the layers are given beside their input may be filled by them: it is not read after.
    beside = _names_in([*call.args[1:], *(k.value for k in call.keywords)])
    activations = tainted | beside | ({activation} if activation else set())
    _refuse_crossing(after, activations - {result})
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
        if stores and not isinstance(node, ast.Name) and _base(node) == "self":
            raise NoCut(f"forward writes to {ast.unparse(node)}", ast.unparse(node))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            part = getattr(module, node.attr, None)
            if callable(part) and not isinstance(part, nn.Module):
                raise NoCut(f"forward uses a method of its own, {node.attr}", ast.unparse(node))


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
        for node in ast.walk(statement):
            if isinstance(node, ast.Return):
                raise NoCut("forward may return before the layers", ast.unparse(statement))
            if isinstance(node, ast.Name) and node.id == _LABELS:
                raise NoCut("the labels are read before the layers", ast.unparse(statement))


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
    for argument in arguments:
        if any(isinstance(n, ast.Name) and n.id == _LABELS for n in ast.walk(argument)):
            raise NoCut("the labels are given to the layers", ast.unparse(statement))
    for argument in arguments[1:]:
        if _reads_activation(argument, module, tainted):
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


def _reads_activation(
    node: ast.AST,
    module: nn.Module,
    tainted: set[str],
    shapes_of: set[str] | frozenset[str] = frozenset(),
) -> bool:
    """Whether code reads a parameter, a part with parameters, or a value made of those; the shapes
    of ``shapes_of`` are no such value."""
    if isinstance(node, ast.Attribute):
        if ast.unparse(node.value) == "self":
            return holds_parameters(module, node.attr)
        if isinstance(node.value, ast.Name) and node.attr in _OF_SHAPE:
            return node.value.id in tainted - shapes_of
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Positions.of_hidden":
        return not _names_in(node.args) <= shapes_of | {"self"}  # of its shape
    if isinstance(node, ast.Name):
        return node.id in tainted
    return any(
        _reads_activation(child, module, tainted, shapes_of) for child in ast.iter_child_nodes(node)
    )


def _may_differ(statement: ast.stmt) -> bool:
    """Whether code may give each stage another value: it draws, or calls what is not known."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        root = called.split(".")[0].split("(")[0]
        known = root in _PLAIN_ROOTS or called in _PLAIN_NAMES
        # A method of a value: of a tensor that every stage has, or of a part without parameters.
        known = known or (isinstance(node.func, ast.Attribute) and root != "super")
        if not known or _DRAWS.search(called):
            return True
    return False


def _called_with(statement: ast.stmt) -> set[str]:
    """The names whose methods are called, and that may keep what they are given (`seen.append`)."""
    found: set[str | None] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add(_base(node.func.value))
    return {name for name in found if name is not None} - {*_PLAIN_ROOTS, "self"}


def _base(node: ast.AST) -> str | None:
    """The name that a chain of attributes and items begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement may give another value, in place included."""
    found: set[str | None] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(_base(node))
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr.endswith("_"):
            found.add(_base(called))
    return {name for name in found if name is not None}
