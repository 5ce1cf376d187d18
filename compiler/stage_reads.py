"""What the code of a forward reads, and which names it may give another value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TypeGuard

from torch import nn

_OF_SHAPE = frozenset({"shape", "size", "device", "dtype", "ndim", "dim"})  # alike on all stages
# Calls of torch that are alike on every stage where their arguments are: no draw, no state.
_PLAIN_ROOTS = frozenset({"torch", "F", "Positions", "math"})
_PLAIN_NAMES = frozenset(
    {"range", "len", "int", "float", "bool", "min", "max", "tuple", "list", "isinstance", "zip"}
    | {"rotary_tables"}
)
_DRAWS = re.compile(r"rand|normal|bernoulli|multinomial|poisson|dropout|uniform|exponential|manual")
_DRAWING = (nn.modules.dropout._DropoutNd, nn.RReLU)  # not our Dropout, which goes by its name


class NoCut(Exception):
    """A forward cannot be cut; ``statement`` is the one in the way, as it stands on the page."""

    def __init__(self, reason: str, statement: str | None = None) -> None:
        super().__init__(reason)
        self.statement = statement


def holds_parameters(module: nn.Module, attribute: str) -> bool:
    """Whether an attribute of the module is a parameter, or a part that has any."""
    part = getattr(module, attribute, None)
    if isinstance(part, nn.Module):
        return any(True for _ in part.parameters())
    return isinstance(part, nn.Parameter)


def reads_activation(
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
        return not names_in(node.args) <= shapes_of | {"self"}  # of its shape
    if isinstance(node, ast.Name):
        return node.id in tainted
    return any(
        reads_activation(child, module, tainted, shapes_of) for child in ast.iter_child_nodes(node)
    )


def may_differ(statement: ast.stmt, module: nn.Module, local: set[str]) -> bool:
    """Whether code may give each stage another value: it draws, or calls what is not known."""
    for node in ast.walk(statement):
        if is_own(node):
            part = getattr(module, node.attr, None)
            if isinstance(part, nn.Module) and any(isinstance(m, _DRAWING) for m in part.modules()):
                return True
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        known = called.split(".")[0] in _PLAIN_ROOTS or called in _PLAIN_NAMES
        # A method of a value: of a tensor that every stage has, or of a part without parameters.
        if isinstance(node.func, ast.Attribute):
            known = known or base_name(node.func) in {None, *local}
        if not known or _DRAWS.search(called):
            return True
    return False


def names_bound(forward: ast.FunctionDef) -> set[str]:
    arguments = {a.arg for a in ast.walk(forward.args) if isinstance(a, ast.arg)}
    return arguments | {
        n.id for n in ast.walk(forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def called_with(statement: ast.stmt) -> set[str]:
    """The names whose methods are called, and that may keep what they are given (`seen.append`)."""
    found: set[str | None] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add(base_name(node.func.value))
    return {name for name in found if name is not None} - {*_PLAIN_ROOTS, "self"}


def base_name(node: ast.AST) -> str | None:
    """The name that a chain of attributes and items begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement may give another value, in place included."""
    found: set[str | None] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(base_name(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr.endswith("_"):
            found.add(base_name(called))
    return {name for name in found if name is not None}


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"


def keeps_parts(value: object) -> bool:
    """A plain list or dictionary through which a part is reached by another way than its name."""
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple | set) and any(
        isinstance(v, nn.Module | nn.Parameter) or keeps_parts(v) for v in value
    )
