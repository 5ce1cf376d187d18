"""A line of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..architecture.difference import Change
from ..architecture.tree import Part
from .phrase import Phrase

Sign = Literal[" ", "+", "-", "~"]


@dataclass(frozen=True)
class Row:
    """A line of a tree.

    - `name`: what names it below the line above: a segment, a dotted chain, `q_norm, k_norm`; of
      some layers of a list `mlp [0..2]`.
    - `paths`: of the parts that it stands for; several where neighbours, or layers of a list, are
      on one line.
    - `phrases`: what is said of them; of a difference only what differs, where anything does.
    - `parameters`: how many they have, or how many more than before: for one of the `times` modules
      of a list that the line stands for, everything below included. None for a config's number.
    - `quiet`: nothing of its own differs; it leads to what does, or is shown since all is.
    - `steps`: where nothing else says how they differ, the lines of a unified diff of the forwards.
    - `change`: what it shows of a difference; `part` the part as it is, or was where it is gone.
      Of several the first.
    """

    sign: Sign
    depth: int
    name: str
    paths: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    parameters: int | None = None
    times: int = 1
    quiet: bool = False
    steps: tuple[str, ...] = ()
    change: Change | None = None
    part: Part | None = None
