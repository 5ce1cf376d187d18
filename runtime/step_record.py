"""What a layer notes in each micro-batch of a step, until the step ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from .mesh import Mesh
    from .micro_batch import Turn


class StepRecord(nn.Module):
    """One entry for each micro-batch of a step: ``record`` [count, ...], no part of the state dict.

    ``begin_micro_batch`` says which one comes; without it there is one. An entry is assigned, never
    added to: a forward that is run again in the backward notes the same once more.
    """

    record: Tensor
    index: Tensor

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        super().__init__()
        # Tensors, so that a compiled forward reads another index without a new trace.
        self.register_buffer("record", torch.zeros(1, *shape, dtype=dtype), persistent=False)
        self.register_buffer("index", torch.zeros(1, dtype=torch.int64), persistent=False)

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        """The next forward (or its repetition) is of micro-batch ``turn.index``."""
        if self.record.shape[0] != turn.count:
            self.record = self.record.new_zeros(turn.count, *self.record.shape[1:])
        self.index.fill_(turn.index)

    def note(self, value: Tensor) -> None:
        """Assigns this micro-batch's entry."""
        value = value.detach().to(self.record.dtype)
        self.record.index_copy_(0, self.index, value.unsqueeze(0))

    @property
    def noting(self) -> bool:
        """Whether a forward counts: in training, and where a backward will follow."""
        return self.training and torch.is_grad_enabled()


class AttachedLoss(StepRecord):
    """A loss that trains beside the one that the model returns, and is no part of its number.

    ``name`` is what it is called in a log. The record holds this rank's part of each micro-batch's
    loss, before any coefficient: the parts of the ranks that share a micro-batch sum to it.
    ``over_dp``: it is one loss of all data parallel ranks' micro-batches, not one of each.
    """

    name = ""
    over_dp = False

    def __init__(self, coeff: float, mesh: Mesh) -> None:
        super().__init__((), torch.float32)
        self.coeff = coeff
        self.mesh = mesh

    @property
    def losses_per_turn(self) -> int:
        """Of how many losses a turn's is the mean, over all ranks."""
        return 1 if self.over_dp else self.mesh.dp.size

    def extra_repr(self) -> str:
        return f"coeff={self.coeff}"
