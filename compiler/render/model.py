"""What is shown: one model, or two and how they differ."""

from __future__ import annotations

from dataclasses import dataclass

from ..architecture.difference import Difference
from ..architecture.figure import Figure
from ..architecture.tree import Architecture
from .code_lines import CodeBlock


@dataclass(frozen=True)
class Model:
    """A model by what the user calls it, where its page comes from (empty where nothing says), and
    what was found out about it.
    """

    name: str
    origin: str
    architecture: Architecture
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Comparison:
    """Two models and how the second differs; `code` is empty where the pages' lines are the same,
    or were not asked for.
    """

    before: Model
    after: Model
    difference: Difference
    code: tuple[CodeBlock, ...] = ()
