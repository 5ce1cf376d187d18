"""Linear recurrences: mixers whose heads keep a state, a matrix, in place of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .calls import Phase

Shape = tuple[int, ...]

# The runtime's functions, with the products of matrices that each place of each head takes.
PRODUCTS = {
    "ssd": 2,  # x b^T into the state, c out of it (arXiv 2405.21060)
    "gated_delta_rule": 3,  # what the key maps to, the correction, the query (arXiv 2412.06464)
}
TYPES = {"ssd": "Mamba-2", "gated_delta_rule": "gated delta net"}


@dataclass(frozen=True)
class Recurrence:
    """One recurrence of a run: the module whose own forward calls the `function`, which of the
    runtime's that is, and its heads.

    A head's state is [`key_dim`, `value_dim`]; the heads of each of `groups` share what is written
    by and what is read by. `places`: of the sequence; `phase`: the forward that it is of.
    """

    path: str
    function: str
    heads: int
    groups: int
    key_dim: int
    value_dim: int
    places: int
    phase: Phase = "train"

    @property
    def state(self) -> int:
        """Numbers of the states of all heads."""
        return self.heads * self.key_dim * self.value_dim


def recurrence(function: str, shapes: Sequence[Shape], path: str) -> Recurrence | None:
    """That of a call of a function of the runtime, given tensors of these shapes in its order."""
    if function == "ssd":  # x [b, s, g, m, p], dt, a, b [b, s, g, k]
        x, key = shapes[0], shapes[3]
    elif function == "gated_delta_rule":  # q [b, s, g, d], k, v [b, s, g, m, e]
        x, key = shapes[2], shapes[0]
    else:
        return None
    _, places, groups, of_a_group, value_dim = x
    return Recurrence(path, function, groups * of_a_group, groups, key[-1], value_dim, places)


def recurrence_flops(call: Recurrence, length: int) -> int:
    """Of a sequence, by the recurrence itself: what a kernel adds by working in chunks does not
    count, as pairs do not that a causal mask hides.
    """
    return 2 * PRODUCTS[call.function] * call.state * length
