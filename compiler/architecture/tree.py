"""The architecture of a model: a tree of parts with their facts, equal layers written once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

Value = bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | None


@dataclass(frozen=True)
class Weight:
    """A parameter that a part holds itself.

    `shape` is global and without padding; `cut` the dimension that tensor parallelism divides, None
    where every rank holds all of it. `tied_to`: the path of the parameter that it is, where it has
    none of its own.
    """

    name: str
    shape: tuple[int, ...]
    cut: int | None = None
    tied_to: str | None = None

    @property
    def count(self) -> int:
        """Numbers that it adds to the model: none where it is another's."""
        return 0 if self.tied_to else math.prod(self.shape)


@dataclass(frozen=True)
class Part:
    """A module of the model, or a run of modules that are the same.

    - `name`: its attribute in its parent (`self_attention`), for layers of a list the list's name
      (`layers`); the root's is its class.
    - `indices`: for a layer of a list, which of the list it stands for; empty elsewhere.
    - `kind`: what it is, in a word of the field that no class name changes: "attention", "mlp",
      "norm", "linear", "embedding", "output", "layer", "layers", "model", "module", ...
    - `label`: the class, as the page names it. Two parts that differ only here are the same.
    - `facts`: what was found out about it, by name, in the order in which a reader wants them; all
      of them count when two parts are compared.
    - `operations`: what its own forward computes, a line for each step and without sizes, its
      children's steps left out.
    - `exact`: a digest of all that it computes itself, sizes included, with its weights.
    - `edges`: what flows between its children; empty for a leaf.
    - `detail`: `operations` with sizes, where there are any; what a reader is shown where a size
      alone differs that nothing else tells.
    """

    name: str
    kind: str
    label: str
    facts: tuple[tuple[str, Value], ...] = ()
    weights: tuple[Weight, ...] = ()
    operations: tuple[str, ...] = ()
    exact: str = ""
    indices: tuple[int, ...] = ()
    children: tuple[Part, ...] = ()
    edges: tuple[Edge, ...] = ()
    detail: tuple[str, ...] = field(default=(), repr=False)

    @property
    def times(self) -> int:
        """How many modules it stands for, within one of its parent."""
        return len(self.indices) or 1

    @property
    def segment(self) -> str:
        """Its part of a path: `mlp`, `layers[0..31]`, `layers[0,2,4]`."""
        return f"{self.name}[{indices_text(self.indices)}]" if self.indices else self.name

    def fact(self, name: str) -> Value:
        """The value of a fact, None where it has none of the name."""
        return dict(self.facts).get(name)

    @functools.cached_property
    def parameters(self) -> int:
        """Of one of the modules that it stands for, its children included."""
        own = sum(weight.count for weight in self.weights)
        return own + sum(child.times * child.parameters for child in self.children)

    def walk(self, path: str = "", times: int = 1) -> Iterator[tuple[str, int, Part]]:
        """Itself and all below: the path, how many modules of the model it stands for, the part.

        The root's path is empty.
        """
        yield path, times, self
        for child in self.children:
            below = f"{path}.{child.segment}" if path else child.segment
            yield from child.walk(below, times * child.times)


@dataclass(frozen=True)
class Edge:
    """What flows between the children of a part.

    `source` and `target` are segments of children, "" the part's own input or output. `shape` is in
    letters and numbers as on a page: ("b", "s", "4096"). `residual`: it goes round its source's
    sibling and is added to what that gives.
    """

    source: str
    target: str
    shape: tuple[str, ...] = ()
    residual: bool = False


@dataclass(frozen=True)
class Architecture:
    """A whole model. `name` is what a reader calls it (`llama`), `config` the numbers of its page's
    `Config` that are no part's fact: (`max_position_embeddings`, 8192); `numbers` all of them.
    """

    name: str
    root: Part
    config: tuple[tuple[str, Value], ...] = ()
    numbers: tuple[tuple[str, Value], ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False)


def indices_text(indices: tuple[int, ...]) -> str:
    """Places in a list as a reader writes them: `0..31`, `0..30:2` (every second), `0,3,4..9`."""
    if len(indices) > 2:
        step = indices[1] - indices[0]
        if step > 1 and all(b - a == step for a, b in itertools.pairwise(indices)):
            return f"{indices[0]}..{indices[-1]}:{step}"
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
