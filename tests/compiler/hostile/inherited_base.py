"""Bases of the classes of `inherited`, with names that both modules use."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import Options

SCALE = 3.0
OFFSET = 0.25


def shift(x: Tensor) -> Tensor:
    return x + OFFSET


class Base(nn.Module):
    factor = 2

    def __init__(self, config: Options, width: int = 8, gated: bool = False) -> None:
        super().__init__()
        self.config = config
        self.gated = gated
        self.linear = nn.Linear(width, width)

    def act(self, x: Tensor) -> Tensor:
        return x.relu() if self.gated else x.tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x)) * self.factor


class Shifted(nn.Module):
    """Reads this module's `SCALE`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return shift(self.linear(x)) * SCALE


class Middle(Base):
    def __init__(self, config: Options, size: int, closed: bool) -> None:
        super().__init__(config, size, gated=not closed)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale
