"""Dropout between layers, with a mask that depends on no layout.

The bits are a hash of where an element stands in the whole run: (seed, step, module name), folded
to one key per module and step; (global sequence index, global position), folded to one key per
place; and the feature. So the same element is dropped at any tp, sequence parallel, dp and
accumulation, under recompute and after a resume.
"""

from __future__ import annotations

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .draws import kept, mix64
from .mesh import Mesh
from .micro_batch import Turn, begin_micro_batch
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

    def __init__(self, p: float, mesh: Mesh) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout probability of {p} is not in [0, 1)")
        self.p = p
        if STANDALONE:
            return
        self.mesh = mesh
        self.has_step = False
        # Tensors, so that a compiled forward reads the new step's values without a new trace.
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("first_sequence", torch.zeros((), dtype=torch.int64), persistent=False)

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
        sequences = self.first_sequence + torch.arange(x.shape[0], device=x.device)
        keep = _keep(self.key, sequences, positions.local_places, x.shape[2], self.p)
        return torch.where(keep, x * (1 / (1 - self.p)), 0.0)

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        """Takes the place of the next forward in the run; ``name`` parts this module's masks."""
        text = f"{turn.seed}/{turn.step}/{name}".encode()
        digest = hashlib.blake2b(text, digest_size=8).digest()
        # fill_ hands the number to the device as an argument: no copy to wait for.
        self.key.fill_(int.from_bytes(digest, "little", signed=True))
        self.first_sequence.fill_(turn.first_sequence)
        self.has_step = True

    def extra_repr(self) -> str:
        return f"p={self.p}"


def set_dropout_step(model: nn.Module, *, seed: int, step: int, first_sequence: int) -> None:
    """``begin_micro_batch`` of the one micro-batch of a step."""
    begin_micro_batch(model, Turn(seed, step, first_sequence))


def _keep(key: Tensor, sequences: Tensor, positions: Tensor, features: int, p: float) -> Tensor:
    """Bool [b, t, h]: which elements stay."""
    place = mix64(mix64(key ^ sequences)[:, None] ^ positions)[..., None]  # [b, t, 1]
    # In int32 from the start: inductor keeps an arange in 32 bits whatever its dtype says.
    return kept(place, torch.arange(features, dtype=torch.int32, device=positions.device), p)
