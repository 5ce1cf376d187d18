"""What differs between two architectures, as data; `compare` makes it, `specc.compiler.render`
shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .tree import Architecture, Part, Value

ChangeKind = Literal["same", "added", "removed", "replaced", "changed"]


@dataclass(frozen=True)
class FactChange:
    """A fact that one side lacks has None there. `name` may also be "name" (the attribute),
    "layers" (how many the part stands for), "weight NAME" (a shape) or "forward" (the steps)."""

    name: str
    before: Value
    after: Value


@dataclass(frozen=True)
class Change:
    """A part before and after, and its children's changes.

    - "added" and "removed": one side is None, and `children` empty;
    - "replaced": another kind of part stands in its place (`children` empty);
    - "changed": facts, weights, steps, the name or the number of layers differ;
    - "same": nothing of its own differs; its children may.

    `path` is the path after, or before where it was removed. `steps`: where the forwards differ,
    the lines of a unified diff of `Part.operations`.
    """

    kind: ChangeKind
    path: str
    before: Part | None
    after: Part | None
    facts: tuple[FactChange, ...] = ()
    steps: tuple[str, ...] = ()
    children: tuple[Change, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing differs here or below."""
        return self.kind == "same" and all(child.empty for child in self.children)

    def walk(self) -> Iterator[Change]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Difference:
    """Two architectures and how the second differs; `config` holds numbers of `Architecture.config`
    that differ."""

    before: Architecture
    after: Architecture
    root: Change
    config: tuple[FactChange, ...] = ()

    @property
    def empty(self) -> bool:
        return self.root.empty and not self.config
