"""What a text is laid out for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Screen:
    """So many columns, in colour or not, ASCII alone or not."""

    width: int = 100
    colour: bool = False
    ascii: bool = False
