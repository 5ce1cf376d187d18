"""The modules that are parts below a module: lists and dicts are none, their elements are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn


class Child(NamedTuple):
    """`name` is the attribute, of an element its list's; `place` its place there; `path` the
    module's own, from the parent."""

    name: str
    place: int | None
    path: str
    module: nn.Module


def children_of(module: nn.Module, prefix: str = "") -> Iterator[Child]:
    """What stands below a module: the elements of a `ModuleList`, or of a chain, in its place;
    those of a `ModuleDict` by a dotted name."""
    for name, child in attributes(module):
        path = f"{prefix}{name}"
        if _is_list(child) or is_chain(child):
            for number, (inner, layer) in enumerate(attributes(child)):
                yield Child(path, number, f"{path}.{inner}", layer)
        elif isinstance(child, nn.ModuleDict):
            yield from children_of(child, f"{path}.")
        else:
            yield Child(path, None, path, child)


def attributes(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A module's children by name; one that stands there twice is told twice."""
    for name, child in module._modules.items():
        if child is not None:
            yield name, child


def _is_list(module: nn.Module) -> bool:
    """Whether a module is a list and nothing else: one that runs or holds a parameter is a part."""
    plain = isinstance(module, nn.ModuleList) and not module._parameters and not module._buffers
    return plain and type(module).forward is nn.ModuleList.forward


def is_chain(module: nn.Module) -> bool:
    """Whether a module only calls layers of one class one after the other: a list that runs itself.

    Another `Sequential` (linear, GELU, linear) is a part of its own.
    """
    if type(module) is not nn.Sequential or len(module) < 2:
        return False
    classes = {type(element) for element in module}
    return len(classes) == 1 and not next(iter(classes)).__module__.startswith("torch.nn.")
