"""Copies of a spec on which the numbers are compared, the smallest first."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from specc.runtime import Mesh
from specc.runtime.reduced import narrow_only, small
from specc.templates.nodes import tree
from specc.templates.spec import PreparedSpec, construct

from ..value import is_config
from .failure import reason

LIMIT = 30_000_000  # parameters of a copy: their initial values take about a second a side


@dataclass(frozen=True)
class Copy:
    """A spec with other numbers.

    `configs` has each of the spec's configs beside its small one, the root's first. `literals` has
    the numbers in params that were changed along, which a page shows as they are.
    """

    spec: PreparedSpec
    configs: tuple[tuple[Any, Any], ...]
    literals: frozenset[tuple[int, int]] = frozenset()
    is_whole: bool = False

    def described(self) -> str:
        """The numbers of the root's config that are other ones here."""
        if self.is_whole or not self.configs:
            return "at full size"
        old, new = self.configs[0]
        names = [f.name for f in dataclasses.fields(old) if not f.name.startswith("_")]
        changed = [n for n in names if getattr(old, n) != getattr(new, n)]
        return "on a copy with " + ", ".join(f"{n}={getattr(new, n)!r}" for n in changed)


def copies(spec: PreparedSpec, refused: list[str]) -> Iterator[Copy]:
    """Copies that can be built and are small enough; why others are not is added to `refused`.

    First with all sizes small, then with the numbers in params that equal them changed along, then
    with the widths as they are, then the spec itself.
    """
    configs = _configs(spec)
    layers = not _fixes_layers(spec)
    for shrink, literal in ((small, False), (small, True), (narrow_only, False)):
        try:
            found = _copy(spec, configs, shrink(configs, layers=layers or literal), literal)
        except Exception as error:
            refused.append(reason(error))
            continue
        if found is not None and _fits(found.spec, refused):
            yield found
    if _fits(spec, refused):
        yield Copy(spec, tuple((c, c) for c in configs), is_whole=True)


def _copy(spec: PreparedSpec, configs: list[Any], new: list[Any], literal: bool) -> Copy | None:
    pairs = tuple(zip(configs, new, strict=True))
    if all(old == other for old, other in pairs):
        return None
    numbers = _changed_numbers(pairs) if literal else {}
    used: set[tuple[int, int]] = set()
    rebuilt = _Rebuilder(pairs, numbers, used)(spec)
    if literal and not used:
        return None  # there are none: the copy would be the one before
    return Copy(rebuilt, pairs, frozenset(used))


def _configs(spec: PreparedSpec) -> list[Any]:
    """The distinct configs of a tree, the root's first."""
    found: list[Any] = []
    for node in tree(spec):
        for value in (node.config_in_force, *node.params.values()):
            if is_config(value) and not any(value is c for c in found):
                found.append(value)
    return found


def _fixes_layers(spec: PreparedSpec) -> bool:
    """Whether the tree says how many layers there are, apart from the config."""
    return any(
        {"layer_specs", "num_layers"} & node.params.keys()
        or getattr(node.submodules, "layer_specs", None)
        for node in tree(spec)
    )


def _changed_numbers(pairs: tuple[tuple[Any, Any], ...]) -> dict[str | int, int]:
    """What a number in params becomes: by its name if that is a field, else by its value, where
    all fields of that value become the same."""
    names: dict[str | int, int] = {}
    values: dict[int, set[int]] = {}
    for old, new in pairs:
        for field in dataclasses.fields(old):
            before, after = getattr(old, field.name), getattr(new, field.name)
            if type(before) is int and type(after) is int and before != after:
                names.setdefault(field.name, after)
                values.setdefault(before, set()).add(after)
    return names | {v: after.pop() for v, after in values.items() if len(after) == 1}


class _Rebuilder:
    """Copies a prepared tree with other configs and numbers; what is shared stays shared."""

    def __init__(
        self,
        pairs: tuple[tuple[Any, Any], ...],
        numbers: Mapping[str | int, int],
        used: set[tuple[int, int]],
    ) -> None:
        self.done: dict[int, Any] = {id(old): new for old, new in pairs}
        self.held = [old for old, _ in pairs]  # so that no id is used twice
        self.numbers, self.used = numbers, used

    def __call__(self, value: Any) -> Any:
        if id(value) in self.done:
            return self.done[id(value)]
        if isinstance(value, PreparedSpec):
            return self._node(value)
        if type(value) in (list, tuple):
            return type(value)(self(v) for v in value)
        if type(value) is dict:
            return {k: self(v) for k, v in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        return value

    def _node(self, node: PreparedSpec) -> PreparedSpec:
        new = copy.copy(node)
        self.done[id(node)] = new
        self.held.append(node)
        new.params = {k: self._param(k, v) for k, v in node.params.items()}
        new.children = self(node.children)
        new.submodules = self(node.submodules)
        new.config_in_force = self(node.config_in_force)
        return new

    def _param(self, name: str, value: Any) -> Any:
        if type(value) is not int:
            return self(value)
        before = self.numbers.get(value, value)
        new = self.numbers.get(name, before)
        if new != value:
            self.used.add((value, new))
        return new

    def _dataclass(self, value: Any) -> Any:
        """A dataclass of children; others hold no node and stay as they are."""
        new = {f.name: self(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if all(part is getattr(value, name) for name, part in new.items()):
            return value
        copied = copy.copy(value)
        for name, part in new.items():
            object.__setattr__(copied, name, part)
        return copied


def _fits(spec: PreparedSpec, refused: list[str]) -> bool:
    try:
        count = parameters(lambda: construct(spec, Mesh.single()))
    except Exception as error:
        refused.append(reason(error))
        return False
    if count > LIMIT:
        refused.append(f"{count:,} parameters are more than {LIMIT:,}")
        return False
    return True


def parameters(build: Callable[[], nn.Module]) -> int:
    """How many numbers a model learns."""
    with torch.device("meta"):
        return sum(p.numel() for p in build().parameters())
