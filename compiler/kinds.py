"""Kinds: which of the recorded modules become one class of the page.

Modules of one class, built at one place, with an equal config and with children of the same
kinds, share a class; what else varies between them (a layer's number, a window) stays an argument.
Classes that come out with the same text are merged later, so a finer split here costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from specc.templates import IdentityOp

from .record import Built, Recording
from .source import is_foldable
from .value import is_config


@dataclass(eq=False)
class Kind:
    """Modules that become one class; `handle` stands for its name until names are given."""

    index: int
    built: list[Built] = field(default_factory=list, repr=False)

    @property
    def cls(self) -> type[nn.Module]:
        return self.built[0].cls

    @property
    def handle(self) -> str:
        return f"_Kind{self.index}_"

    @property
    def instances(self) -> list[nn.Module]:
        return [b.module for b in self.built]


class Kinds:
    """All kinds of a recording, children before their parents."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.configs: list[Any] = []  # distinct values, in the order met
        self._signatures: dict[int, Hashable] = {}
        self._by_module: dict[int, Kind] = {}
        self.kinds: list[Kind] = []
        by_signature: dict[Hashable, Kind] = {}
        for module in self._children_first():
            built = recording.of(module)
            if built is None or not is_written_out(module):
                continue
            signature = self._signature(module)
            if signature not in by_signature:
                by_signature[signature] = Kind(len(self.kinds))
                self.kinds.append(by_signature[signature])
            by_signature[signature].built.append(built)
            self._by_module[id(module)] = by_signature[signature]

    def of(self, module: nn.Module) -> Kind | None:
        return self._by_module.get(id(module))

    @property
    def root(self) -> Kind:
        kind = self.of(self.recording.root)
        assert kind is not None
        return kind

    def by_handle(self, handle: str) -> Kind | None:
        if handle.startswith("_Kind") and handle.endswith("_") and handle[5:-1].isdigit():
            return self.kinds[int(handle[5:-1])]
        return None

    def config_index(self, config: Any) -> int:
        """Equal configs are one config."""
        for index, known in enumerate(self.configs):
            if type(known) is type(config) and known == config:
                return index
        self.configs.append(config)
        return len(self.configs) - 1

    def _children_first(self) -> Iterator[nn.Module]:
        seen: set[int] = set()

        made: dict[int, list[nn.Module]] = {}
        for built in self.recording.built.values():
            made.setdefault(id(built.owner), []).append(built.module)

        def visit(module: nn.Module) -> Iterator[nn.Module]:
            if id(module) not in seen:
                seen.add(id(module))
                # What was built and then dropped is still a call in somebody's constructor.
                for child in (*module.children(), *made.get(id(module), ())):
                    yield from visit(child)
                yield module

        root = self.recording.root
        self._signature_of_root_config(root)
        rest = [b.module for b in self.recording.built.values()]
        yield from visit(root)
        for module in rest:
            yield from visit(module)

    def _signature_of_root_config(self, root: nn.Module) -> None:
        """The root's config is the page's `Config`: number it first."""
        built = self.recording.of(root)
        for value in built.arguments.values() if built else ():
            if is_config(value):
                self.config_index(value)

    def _signature(self, module: nn.Module) -> Hashable:
        if id(module) not in self._signatures:
            self._signatures[id(module)] = self._signature_of(module)
        return self._signatures[id(module)]

    def _signature_of(self, module: nn.Module) -> Hashable:
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            inner: list[Hashable] = []
            for child in module:
                signature = self._signature(child)
                if not inner or inner[-1] != signature:
                    inner.append(signature)
            return (type(module), tuple(inner))
        children = tuple((name, self._signature(child)) for name, child in module.named_children())
        if not is_written_out(module):
            return (type(module), children if isinstance(module, nn.ModuleDict) else ())
        built = self.recording.of(module)
        configs = tuple(
            (name, self.config_index(value))
            for name, value in (built.arguments if built else {}).items()
            if is_config(value)
        )
        return (type(module), self._role(module, built), configs, children)

    def _role(self, module: nn.Module, built: Built | None) -> Hashable:
        """Where it was asked for: the place of the call, or the parameter it was handed in as."""
        if built is None:
            return None
        holder = self.holder(module)
        if holder is not None:
            return (holder[0].cls, holder[1])
        return built.place

    def holder(self, module: nn.Module) -> tuple[Built, str] | None:
        """The module whose constructor was handed this one by the spec, and as which parameter.

        The spec builds such a child and its parent in one call, so both have the same place; a
        module that a constructor's own code passes on was built at another.
        """
        return self._handed.get(id(module))

    @functools.cached_property
    def _handed(self) -> dict[int, tuple[Built, str]]:
        found: dict[int, tuple[Built, str]] = {}
        for built in self.recording.built.values():
            for name, value in built.arguments.items():
                child = self.recording.of(value) if isinstance(value, nn.Module) else None
                if child is not None and is_foldable(built.cls) and child.place == built.place:
                    found[id(value)] = (built, name)
        return found


def is_written_out(module: nn.Module) -> bool:
    """Whether the page holds this module's class, and neither imports nor drops it."""
    return is_foldable(type(module)) and not isinstance(module, IdentityOp)
