"""What a run of a model leaves behind: the steps of each module's own forward, as data.

A *step* is what the author of the page wrote: the call of a child, of a function of the runtime, of
torch. What happens inside of a step is none of its module's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

Phase = Literal["train", "labels", "eval"]


class Value(NamedTuple):
    """A tensor, or another object that holds tensors (positions), in the arguments of a step.

    `source`: the number of the step of the same forward that gave it, or its name: that of a
    parameter or buffer, seen from the module (`weight`, `word_embeddings.weight`), or of an input
    (`input 0`). `part`: which of the step's results, or of the input's tensors; -1 where it is the
    only one.
    """

    source: int | str
    part: int
    shape: tuple[int, ...]
    dtype: torch.dtype | None


class Name(NamedTuple):
    """An argument that stands for something else than a number: a module, by its path from the
    caller, a type, or what could not be written down."""

    text: str


@dataclass(frozen=True)
class Step:
    """One step. `name` is the child's path from the caller ("child"), the function's name in
    `specc.runtime` ("runtime"), or torch's name of the operation ("torch").

    Arguments are numbers, strings, `Value`, `Name`, slices as ("slice", start, stop, step), and
    tuples of them. Those of the runtime are bound: `args` has what it has to be given, `kwargs`
    what differs from its default; a child's are all in `kwargs`, by its own names for them. Meshes
    and devices are left out.
    `attention`: the number of the `AttentionCall` that it is. `rotary`: where it turns queries or
    keys, what its tables were made with; empty where that is not known.
    """

    kind: Literal["child", "runtime", "torch"]
    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Value, ...]
    attention: int | None = None
    rotary: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module's forward: its inputs, its own steps, and what it returned: a `Value`,
    or a tuple of them.

    Each input has a word for what it is: the parameter's name at the root, "positions" or "rotary"
    below, else none.
    """

    path: str
    inputs: tuple[tuple[str, Any], ...]
    steps: tuple[Step, ...]
    returned: Any

    @property
    def values(self) -> tuple[Value, ...]:
        """The tensors that it returned, in order."""
        return tuple(values(self.returned))


@dataclass(frozen=True)
class AttentionCall:
    """One softmax(q k^T) v of the run.

    - `path`: the module whose own forward calls it; `function`: "attention" (the runtime's),
      "scaled_dot_product_attention" (torch's), or "matrix products" (written out by hand).
    - `heads` query heads over `groups` key/value heads; `head_dim` channels of queries and keys,
      `value_dim` of values.
    - `places`, `key_places`: how many queries and keys there are; `Run.places` stands for the
      sequence.
    - `causal`: None where a mask is applied whose content a run without values does not know.
    - `window`: places that a query sees, itself included; None: all.
    - `scale`: what scores are multiplied by; None: 1 / sqrt(head_dim).
    - `sinks`: "learned", "zero" or None; `masked`: a mask tensor is given beside.
    - `dropout`: of the weights, in training.
    - `latent`, `shared`, `query_latent`: see `latents.Latent`; known once a run has been read.
    - `phase`: the forward that it is of, "train" or "labels".
    """

    path: str
    function: str
    heads: int
    groups: int
    head_dim: int
    value_dim: int
    places: int
    key_places: int
    causal: bool | None = True
    window: int | None = None
    softcap: float | None = None
    sinks: str | None = None
    scale: float | None = None
    dropout: float = 0.0
    masked: bool = False
    latent: int | None = None
    shared: int | None = None
    query_latent: int | None = None
    phase: Phase = "train"


class Form(NamedTuple):
    """Shape and dtype of a tensor; `name` is its parameter's or buffer's, else None."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str | None = None


class Operation(NamedTuple):
    """One ATen call of a forward: in which module, in which attention call, and whether inside a
    recurrence."""

    path: str
    op: str  # "aten.mm.default"
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]
    attention: int | None
    recurrent: bool = False


def values(value: Any) -> Iterator[Value]:
    """The tensors in an argument, at any depth."""
    if isinstance(value, Value):
        yield value
    elif isinstance(value, tuple) and not isinstance(value, Name):
        for part in value:
            yield from values(part)
