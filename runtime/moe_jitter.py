"""Noise on what a router reads, the same at every layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .draws import mix64
from .mesh import Mesh
from .moe_tokens import token_places
from .placed_draws import place_keys, register_place, set_place
from .standalone import STANDALONE

if TYPE_CHECKING:
    from .micro_batch import Turn


class Jitter(nn.Module):
    """x [b, t, h] times draws from [1 - eps, 1 + eps] in training (arXiv 2101.03961).

    A draw is a hash of (seed, step, module name, sequence of the step, place, feature), so it is
    the same at any layout, under recompute and after a resume. ``begin_micro_batch`` has to be
    called on the whole model before every training forward.

    Communicates only at tp above 1 without sequence parallel: two numbers, to learn which places a
    rank has. Raises RuntimeError for a training forward without a micro-batch.
    """

    key: Tensor
    first_sequence: Tensor
    has_step: bool = False

    def __init__(self, eps: float, mesh: Mesh) -> None:
        super().__init__()
        self.eps = eps
        if STANDALONE:
            return
        self.mesh = mesh
        register_place(self)

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        """Says where the next forward stands in the run."""
        set_place(self, name, turn)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if STANDALONE:
            return x * (1 + self.eps * (2 * torch.rand_like(x) - 1))  # torch's generator draws
        if not self.has_step:
            raise RuntimeError(
                "the router's jitter depends on the step and none was set: call "
                "specc.runtime.begin_micro_batch(model, turn) before a training forward, or "
                "model.eval() for none"
            )
        rows = place_keys(self, x.shape[0], token_places(x.shape[1], self.mesh, x.device))
        bits = mix64(rows ^ torch.arange(x.shape[2], device=x.device))
        draws = (bits >> 40).to(torch.float32) * 2.0**-23  # 24 signed bits: in [-1, 1)
        return x * (1 + self.eps * draws).to(x.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"
