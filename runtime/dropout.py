"""Dropout between layers, with a mask that depends on no layout.

The bits are a hash of where an element stands in the whole run: (seed, step, module name), folded
to one key per module and step; (global sequence index, global position), folded to one key per
place; and the feature. So the same element is dropped at any tp, sequence parallel, dp and
accumulation, under recompute and after a resume.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .draws import kept
from .mesh import Mesh
from .micro_batch import Turn, begin_micro_batch
from .placed_draws import place_keys, register_place, set_place
from .positions import Positions
from .standalone import STANDALONE


class Dropout(nn.Module):
    """Zeroes elements of x [b, t, h] with probability p and scales the rest by 1 / (1 - p).

    Works on what stands between the layers, whose features no rank cuts; no collective runs.
    ``begin_micro_batch`` has to be called on the whole model before every training forward.
    Raises ValueError for a p outside [0, 1), RuntimeError for a training forward without a step,
    ValueError for positions of another length than x.
    """

    key: Tensor
    first_sequence: Tensor
    has_step: bool = False

    def __init__(self, p: float, mesh: Mesh) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability of {p} is not in [0, 1)")
        self.p = p
        if STANDALONE:
            return
        self.mesh = mesh
        register_place(self)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        if STANDALONE:
            return F.dropout(x, self.p, self.training)  # torch's generator draws
        if not self.training or self.p == 0:
            return x
        if not self.has_step:
            raise RuntimeError(
                "Dropout's mask depends on the step and none was set: call "
                "specc.runtime.begin_micro_batch(model, Turn(seed, step, first_sequence)) "
                "before a training forward, or model.eval() to drop nothing"
            )
        if positions.local_places.shape[0] != x.shape[1]:
            raise ValueError(
                f"{positions.local_places.shape[0]} local positions were given for activations of "
                f"{x.shape[1]} places {list(x.shape)}"
            )
        rows = place_keys(self, x.shape[0], positions.local_places)
        # In int32 from the start: inductor keeps an arange in 32 bits whatever its dtype says.
        features = torch.arange(x.shape[2], dtype=torch.int32, device=x.device)
        keep = kept(rows, features, self.p)  # bool [b, t, h]
        return torch.where(keep, x * (1 / (1 - self.p)), 0.0)

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        """Says where the next forward stands in the run."""
        set_place(self, name, turn)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def set_dropout_step(model: nn.Module, *, seed: int, step: int, first_sequence: int) -> None:
    """``begin_micro_batch`` of the one micro-batch of a step."""
    begin_micro_batch(model, Turn(seed, step, first_sequence))
