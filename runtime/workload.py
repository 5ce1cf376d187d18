"""What a rank is given to do in a step, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .layouts import Degrees
from .recompute import CORE_ATTENTION, Recompute

CORE_ONLY = (CORE_ATTENTION,)


@dataclass(frozen=True)
class Workload:
    """``accumulation`` micro-batches a step, each of ``batch`` sequences of ``length`` places.

    ``length`` is a whole sequence's. ``recompute`` None: nothing is computed twice.

    Raises NotImplementedError for a recompute whose memory the formulas do not know.
    """

    degrees: Degrees
    length: int
    batch: int = 1
    accumulation: int = 1
    dtype: torch.dtype = torch.bfloat16
    recompute: Recompute | None = None
    loss_chunks: int = 1

    def __post_init__(self) -> None:
        again = self.recompute
        if again is not None and again.granularity == "selective" and again.modules != CORE_ONLY:
            raise NotImplementedError(
                f"the formulas know recompute none, full and selective of {CORE_ATTENTION}, not "
                f"selective of {', '.join(again.modules) or 'operations'}; simulate it instead"
            )

    def recomputes(self, layer: int) -> bool:
        """Whether this layer, counted from 0, runs its forward once more in the backward."""
        again = self.recompute
        return again is not None and again.granularity == "full" and layer % again.every == 0

    @property
    def recomputes_attention(self) -> bool:
        """Whether attention between its projections does."""
        return self.recompute is not None and self.recompute.core_attention

    @property
    def tokens(self) -> int:
        """Places of this rank's sequences that its attention and its MLP work on: b * s."""
        return self.batch * self.length // self.degrees.cp

    @property
    def tokens_between(self) -> int:
        """Places that it holds between the layers: b * t."""
        return self.tokens // (self.degrees.tp if self.degrees.sequence_parallel else 1)

    @property
    def bytes(self) -> int:
        """Of an element of an activation."""
        return self.dtype.itemsize

    @property
    def shards(self) -> int:
        """The ranks over which FSDP cuts a parameter."""
        degrees = self.degrees
        return degrees.cp * degrees.dp // degrees.dp_replicate if degrees.zero else 1
