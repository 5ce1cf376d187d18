"""A model of classes of its own, for the looks of `specc why`: its lines move with no template."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from specc.templates import ModuleSpec, build_module


@dataclass(frozen=True)
class Sizes:
    width: int
    words: int = 50
    depth: int = 2
    activation: str = "relu"
    gate: bool = False
    dropout: float = 0.0
    scale: float | None = None

    @property
    def inner(self) -> int:
        if self.gate:
            return 2 * self.width
        return 4 * self.width


class Recorded(nn.Module):
    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.config = config


class Mixer(Recorded):
    """Mixes what a place holds.

    A gate opens it. [if config.gate]
    By a ReLU. [if config.activation == "relu"]
    """

    def __init__(self, config: Sizes, bias: bool = True) -> None:
        super().__init__(config)
        self.up = nn.Linear(config.width, config.inner, bias=bias)
        self.down = nn.Linear(
            config.inner,
            config.width,  # as wide as what comes in
            bias=bias,
        )
        self.gate = None
        if config.gate:
            self.gate = nn.Linear(config.width, config.inner)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x * mask
        y = self.up(x)
        # The rest of what a negative number says is lost. [if self.config.activation == "relu"]
        if self.config.activation == "relu":
            y = F.relu(y)
        elif self.config.activation == "gelu":
            y = F.gelu(y)
        if self.gate is not None:
            y = y * self.gate(x).sigmoid()
        if self.config.dropout > 0.0:
            y = F.dropout(y, self.config.dropout, self.training)
        return x + self.down(y) * (1.0 if self.config.scale is None else self.config.scale)


def flat(x: Tensor) -> Tensor:
    return x.flatten(0, 1)


class Reader(Recorded):
    def __init__(self, config: Sizes, layer: ModuleSpec) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.words, config.width)
        self.layers = nn.ModuleList(
            [build_module(layer, config, bias=False) for _ in range(config.depth)]
        )
        self.head = nn.Linear(config.width, config.words)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        x = self.head(x)
        if labels is None:
            return x
        return F.cross_entropy(flat(x), labels.flatten())


reader = ModuleSpec(Reader, {"config": Sizes(width=8), "layer": ModuleSpec(Mixer)})
