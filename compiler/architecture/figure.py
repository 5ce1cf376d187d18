"""A number that people ask of a model, with its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["", "FLOPs", "bytes"]


@dataclass(frozen=True)
class Figure:
    """One line of the figures below a tree.

    `name` is stable and the same for every model (`flops.forward.attention`), `label` what a reader
    sees, `level` how deep it stands under the line above. `value` None: it cannot be said, and
    `note` says why; else `note` is what it holds for ("at 8192 tokens").
    """

    name: str
    label: str
    value: int | None
    unit: Unit = ""
    level: int = 0
    note: str = ""
