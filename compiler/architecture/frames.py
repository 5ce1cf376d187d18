"""One call of a forward while it runs: where each of its tensors comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from specc.runtime import Positions
from specc.runtime.moe_dispatch import Dispatched

from .calls import Step


class Frame:
    """One call of a forward, while it runs."""

    def __init__(self, path: str, inputs: dict[str, Any]) -> None:
        self.path = path
        self.steps: list[Step] = []
        self.sources: dict[int, tuple[int | str, int]] = {}
        self.held: list[Any] = []  # so that no id is used twice
        for number, value in reversed(list(enumerate(inputs.values()))):
            self.know(value, f"input {number}")  # what is passed twice is the first

    def know(self, value: Any, source: int | str) -> None:
        """From now on the tensors in `value` go by this source."""
        found = list(tracked(value))
        for part, one in enumerate(found):
            self.sources[id(one)] = (source, -1 if len(found) == 1 else part)
            self.held.append(one)


def tracked(value: Any) -> Iterator[Any]:
    """The tensors, and what holds positions, in a value: what has a source."""
    if isinstance(value, (Tensor, Positions)):
        yield value
    elif isinstance(value, Dispatched):  # what it has beside is for its way back
        yield from (value.rows, value.probs, value.tokens_per_expert)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tracked(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tracked(part)
