"""Where a forward pass stands in the run, for the modules that want to know.

Dropout's mask and a router's counts belong to one micro-batch. Under a pipeline several are under
way at once, and a recompute runs a forward again while another's is the newest: so whoever runs a
forward or a backward says first which micro-batch it is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from torch import nn


@dataclass(frozen=True)
class Turn:
    """One micro-batch of one step.

    ``first_sequence`` is the index of its first sequence in the step's global batch, which counts
    over data-parallel ranks and accumulated micro-batches; ``index`` the micro-batch's own number
    among the ``count`` that this rank has in the step. All data-parallel ranks have as many.
    """

    seed: int
    step: int
    first_sequence: int
    index: int = 0
    count: int = 1


class MicroBatchModule(Protocol):
    """A module that is told of each micro-batch.

    What it computes in a forward has to follow from its input and ``turn`` alone, since a recompute
    comes with the same turn again; what it keeps it assigns at ``turn.index`` and never adds up.
    """

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        """``name`` is the module's qualified name in the whole model: the same on every stage."""


def begin_micro_batch(model: nn.Module, turn: Turn) -> None:
    """Tells every module of ``model`` with a method ``begin_micro_batch`` which one comes.

    Call it on the whole model, so that names agree on all ranks, before each training forward, and
    before a backward that recomputes where another forward has run in between.
    """
    for name, module in model.named_modules():
        if hasattr(type(module), "begin_micro_batch"):
            cast(MicroBatchModule, module).begin_micro_batch(name, turn)
