"""Losses that keep a router's choices even and its logits small.

They are attached to the graph where they are computed, and are no part of the loss that is
reported. Each rank computes the part of its own tokens, and the parts sum to the loss: see the one
gradient rule in docs/runtime.md. The step's total is the mean over all its micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .collectives import start_all_reduce, wait
from .mesh import Axis, Mesh
from .moe_tokens import micro_batch_tokens
from .step_record import AttachedLoss, StepRecord

if TYPE_CHECKING:
    from .micro_batch import Turn


class _AttachLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = loss.dtype
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (weight,) = ctx.saved_tensors
        return grads[0], weight.to(ctx.dtype), None


def attach_loss(x: Tensor, loss: Tensor, weight: Tensor) -> Tensor:
    """x, whose backward adds ``weight`` times the gradient of ``loss`` (both scalars)."""
    y: Tensor = _AttachLoss.apply(x, loss, weight)  # type: ignore[no-untyped-call]
    return y


class RouterLoss(AttachedLoss):
    """A loss of a router: ``coeff`` times what a subclass computes for this rank's tokens."""

    weight: Tensor

    def __init__(self, coeff: float, mesh: Mesh) -> None:
        super().__init__(coeff, mesh)
        self.count = 1  # micro-batches that the weight is for
        start = torch.full((), 1 / self.losses_per_turn)
        self.register_buffer("weight", start, persistent=False)

    def begin_micro_batch(self, name: str, turn: Turn) -> None:
        super().begin_micro_batch(name, turn)
        if turn.count != self.count:
            self.count = turn.count
            # Another tensor: a pipeline's micro-batches under way have kept the one from before.
            self.weight = torch.full_like(self.weight, 1 / (self.losses_per_turn * turn.count))

    def attached(self, x: Tensor, loss: Tensor) -> Tensor:
        """x with the loss attached, which is noted for the step's log."""
        self.note(loss)
        return attach_loss(x, self.coeff * loss, self.weight)


class AuxLoss(RouterLoss):
    """Switch Transformer's load balancing loss of a micro-batch (arXiv 2101.03961).

    ``coeff`` x E / (k T^2) x sum over the experts e of P_e x c_e: T tokens, P_e the sum of their
    scores for e, and c_e how many have e among the k highest scores. Megatron-Core's formula: the
    choice is a plain top-k of the scores, whatever groups and biases made of it elsewhere.

    | | collective | shape |
    |---|---|---|
    | forward | all-reduce over tp x cp, of the counts | [E] |
    | backward | none: counts have no gradient | |
    """

    name = "load_balancing_loss"

    def __init__(self, coeff: float, topk: int, mesh: Mesh) -> None:
        super().__init__(coeff, mesh)
        self.topk = topk

    def forward(self, probs: Tensor, scores: Tensor) -> Tensor:
        """``probs`` [b, t, k] as they are, the loss of ``scores`` [b, t, E] attached."""
        if not self.noting:
            return probs
        counts = summed(chosen_counts(scores, self.topk).sum(0), self.mesh.tp_cp)  # [E]
        return self.attached(probs, balance(scores.sum((0, 1)), counts, self.topk))


class SequenceAuxLoss(AuxLoss):
    """The load balancing loss of each sequence by itself, their mean: T is its length.

    | | collective | shape |
    |---|---|---|
    | forward | all-reduce over tp x cp, of the counts | [b, E] |
    | backward | none: counts have no gradient | |
    """

    name = "seq_load_balancing_loss"

    def forward(self, probs: Tensor, scores: Tensor) -> Tensor:
        """``probs`` [b, t, k] as they are, the loss of ``scores`` [b, t, E] attached."""
        if not self.noting:
            return probs
        counts = summed(chosen_counts(scores, self.topk), self.mesh.tp_cp)  # [b, E]
        return self.attached(probs, balance(scores.sum(1), counts, self.topk).mean())


class GlobalAuxLoss(AuxLoss):
    """The load balancing loss of a step so far (arXiv 2501.11873).

    The counts are those of all data parallel ranks' micro-batches, averaged over the turns of the
    step up to this one, and T is the tokens of a turn; the scores are the micro-batch's. Over the
    ranks the parts sum to the loss. (Megatron-Core's data parallel divides that sum by dp.)

    | | collective | shape |
    |---|---|---|
    | forward | all-reduce over dp x cp x tp, of the counts | [E] |
    | backward | none: counts have no gradient | |
    """

    name = "global_load_balancing_loss"
    over_dp = True

    def __init__(self, coeff: float, topk: int, num_experts: int, mesh: Mesh) -> None:
        super().__init__(coeff, topk, mesh)
        self.counts = StepRecord((num_experts,), torch.int64)

    def forward(self, probs: Tensor, scores: Tensor) -> Tensor:
        """``probs`` [b, t, k] as they are, the loss of ``scores`` [b, t, E] attached."""
        if not self.noting:
            return probs
        counts = summed(chosen_counts(scores, self.topk).sum(0), self.mesh.dp_cp_tp)
        self.counts.note(counts)
        turns = torch.arange(self.counts.record.shape[0], device=counts.device)
        so_far = (turns <= self.counts.index).to(scores.dtype)  # the entries after it are stale
        mean = so_far @ self.counts.record.to(scores.dtype) / so_far.sum()
        return self.attached(probs, balance(scores.sum((0, 1)), mean, self.topk))


class ZLoss(RouterLoss):
    """``coeff`` x the mean over the tokens of logsumexp(logits)^2 (ST-MoE, arXiv 2202.08906).

    | | collective | shape |
    |---|---|---|
    | forward | none where each rank of tp x cp has as many tokens; else all-reduce | [] |
    | backward | none | |
    """

    name = "z_loss"

    def forward(self, logits: Tensor) -> Tensor:
        """``logits`` [b, t, E] as they are, their loss attached."""
        if not self.noting:
            return logits
        squares = logits.logsumexp(-1).square()
        return self.attached(logits, squares.sum() / micro_batch_tokens(squares, self.mesh))


def chosen_counts(scores: Tensor, topk: int) -> Tensor:
    """How many tokens of each sequence have each expert among their ``topk``: int64 [b, E]."""
    return count_experts(scores.detach().topk(topk).indices, scores.shape[-1])


def count_experts(experts: Tensor, num_experts: int) -> Tensor:
    """How often each sequence of ``experts`` [b, t, k] names each one: int64 [b, E]; -1 is none."""
    flat = experts.flatten(1) + 1
    counts = flat.new_zeros(flat.shape[0], num_experts + 1)
    return counts.scatter_add_(1, flat, torch.ones_like(flat))[:, 1:]


def balance(mass: Tensor, counts: Tensor, topk: int) -> Tensor:
    """E / (k T^2) x sum of P x c, for scores' sums P and counts c, both [..., E]."""
    counts = counts.to(mass.dtype)
    tokens = counts.sum(-1) / topk
    return (mass * counts).sum(-1) * (mass.shape[-1] / topk) / tokens.square()


def summed(counts: Tensor, axis: Axis) -> Tensor:
    """The sum over the ranks of an axis; counts have no gradient."""
    if axis.size == 1:
        return counts
    return wait(start_all_reduce(counts, axis))
