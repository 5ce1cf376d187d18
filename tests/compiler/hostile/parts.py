"""What the hostile classes share: a frozen config and children that other classes are given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn


class Kind(Enum):
    PLAIN = 1
    GATED = 2


@dataclass(frozen=True)
class Options:
    """Each field has one value: tests that decide are true for `flag`, false for `off`."""

    width: int = 8
    layers: int = 2
    scale: float = 0.5
    flag: bool = True
    off: bool = False
    kind: str = "gelu"
    missing: int | None = None
    limit: int | None = 3
    zero: float = 0.0
    sizes: tuple[int, ...] = (8, 4, 8)
    choice: Kind = Kind.GATED

    @property
    def half(self) -> int:
        return self.width // 2

    @property
    def wide(self) -> bool:
        return self.width > 4 and self.flag

    @property
    def inner(self) -> int:
        if self.limit is not None:
            return self.limit
        return 4 * self.width


class Scaled(nn.Module):
    """A child with an option of its own and an argument that may be left out."""

    def __init__(self, config: Options, factor: float = 1.0, gated: bool = False) -> None:
        super().__init__()
        self.factor = factor
        self.gated = gated
        self.weight = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x * self.weight * self.factor
        if self.gated:
            x = x * x.sigmoid()
        if bias is not None:
            x = x + bias
        return x


class Two(nn.Module):
    """A child whose second argument it ignores where there is none."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        y = self.linear(x) * scale
        if mask is not None:
            y = y * mask
        return y
