"""Tokens further ahead: what a model that predicts more than the next token reads and trains on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .collectives import start_all_gather, start_all_reduce, wait
from .context_parallel import in_order
from .mesh import Mesh
from .positions import Positions
from .step_record import AttachedLoss
from .vocab_parallel import IGNORED


def tokens_ahead(ids: Tensor, positions: Positions, mesh: Mesh, count: int) -> tuple[Tensor, ...]:
    """For each place of ids [b, s], the id of the place after it, of the one after that, ...

    Each [b, s]; 0 beyond the end of a document, where no label counts (``next_labels``, which has
    the collectives).
    """
    found = [ids]
    for _ in range(count):
        found.append(_from_next_place(found[-1], positions, mesh, 0))
    return tuple(found[1:])


def next_labels(labels: Tensor, positions: Positions, mesh: Mesh) -> Tensor:
    """For each place of labels [b, s], the label of the place after it in its document, else -100.

    The places are this rank's, and the one after may be another's.

    | | collective | shape |
    |---|---|---|
    | forward | all-gather over cp | [b, s] int64 -> [b, s cp] |
    | backward | none: labels have no gradient | |
    """
    return _from_next_place(labels, positions, mesh, IGNORED)


def _from_next_place(own: Tensor, positions: Positions, mesh: Mesh, outside: int) -> Tensor:
    whole = _whole_sequence(own, mesh)
    after = torch.cat((whole[:, 1:], whole.new_full((whole.shape[0], 1), outside)), 1)
    if positions.starts is not None:
        begins = positions.starts[:, 1:] != positions.starts[:, :-1]  # the place after is another's
        after[:, :-1] = after[:, :-1].masked_fill(begins, outside)
    return after if mesh.cp.size == 1 else after[:, positions.places]


def _whole_sequence(own: Tensor, mesh: Mesh) -> Tensor:
    """[b, s] of this rank's places to [b, s cp] of all, in their order."""
    if mesh.cp.size == 1:
        return own
    return in_order(wait(start_all_gather(own[None], mesh.cp)))


class MultiTokenLoss(AttachedLoss):
    """Trains the losses of tokens further ahead beside the one that is returned (arXiv 2412.19437).

    The model's loss, as a number, stays that of the next token: the others are attached to it, and
    each takes ``coeff`` times the gradient that the next token's loss at that place is given. So
    they are divided by the step's labels, as that one is: the paper's formula, and Megatron-Core's
    where it calculates the loss per token.

    In a step's log their sum's mean over a micro-batch's labels, before ``coeff``.

    | | collective | shape |
    |---|---|---|
    | forward | all-reduce over cp, of how many labels count | [] |
    | backward | none | |
    """

    name = "mtp_loss"

    def forward(self, loss: Tensor, further: Tensor, labels: Tensor) -> Tensor:
        """``loss`` [b, s] as it is, ``further`` [b, s] attached; ``labels`` [b, s] of the first."""
        if not self.noting:
            return loss
        count = (labels != IGNORED).sum()
        if self.mesh.cp.size > 1:
            count = wait(start_all_reduce(count, self.mesh.cp))
        self.note(further.sum() / count.clamp(min=1) / self.mesh.tp.size)  # alike on ranks of tp
        y: Tensor = _AttachEach.apply(loss, further, self.coeff)  # type: ignore[no-untyped-call]
        return y


class _AttachEach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, further: Tensor, coeff: float) -> Tensor:
        ctx.coeff = coeff
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return grads[0], grads[0] * ctx.coeff, None
