"""Cross entropy over columns of logits that tp may cut: its parts, and the whole of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .collectives import all_reduce_max, start_all_reduce, wait
from .mesh import Axis
from .parameters import axis_cut

IGNORED = -100  # a label that asks for no loss, as in PyTorch


@dataclass(frozen=True)
class Vocabulary:
    """``size`` entries cut over ``axis``: this rank's columns, of which the last may be padding."""

    size: int
    axis: Axis

    @property
    def first(self) -> int:
        return axis_cut(self.size, self.axis).offset

    @property
    def columns(self) -> int:
        return axis_cut(self.size, self.axis).size

    @property
    def valid(self) -> int:
        return axis_cut(self.size, self.axis).valid


def softcap(logits: Tensor, cap: float) -> Tensor:
    """cap * tanh(logits / cap) in float32, the result in the logits' dtype (arXiv 2408.00118)."""
    return (cap * torch.tanh(logits.float() / cap)).to(logits.dtype)


def softcap_slope(capped: Tensor, cap: float) -> Tensor:
    """How much a capped logit grows with the logit: 1 - tanh^2, from the capped ones."""
    return 1 - (capped.float() / cap).square()


def statistics(logits: Tensor, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Of this rank's columns [.., v], in float32: logsumexp, and the label's logit [2, ..].

    -inf where the columns are all padding, 0 where the label is another rank's.
    """
    index = labels - vocabulary.first
    logits = logits[..., : vocabulary.valid].float()
    if vocabulary.valid == 0:
        own = logits.sum(-1)
    else:
        held = (index >= 0) & (index < vocabulary.valid)
        own = logits.gather(-1, torch.where(held, index, 0).unsqueeze(-1)).squeeze(-1)
        own = torch.where(held, own, 0.0)
    return torch.stack((logits.logsumexp(-1), own))


def losses(found: Tensor, labels: Tensor, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
    """Each token's loss, and the logsumexp of all columns, from every rank's statistics."""
    part, own = found
    if vocabulary.axis.size == 1:
        whole = part
    else:
        highest = all_reduce_max(part, vocabulary.axis)
        sums = torch.stack(((part - highest).exp(), own))
        share, own = wait(start_all_reduce(sums, vocabulary.axis))
        whole = highest + share.log()
    return _where_asked(whole - own, labels, vocabulary), whole


def token_weights(gradient: Tensor, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The gradient of each token's loss, over all ranks, which hold the same loss each."""
    if vocabulary.axis.size > 1:
        gradient = wait(start_all_reduce(gradient, vocabulary.axis))
    return _where_asked(gradient, labels, vocabulary)


def logits_gradient(
    logits: Tensor, labels: Tensor, vocabulary: Vocabulary, whole: Tensor, weights: Tensor
) -> Tensor:
    """(softmax - one at the label) * weight for this rank's columns, in the logits' dtype."""
    # One copy in float32, which the rest changes in place.
    gradient = (logits - whole.unsqueeze(-1)).exp_()
    column = torch.arange(vocabulary.columns, device=labels.device) + vocabulary.first
    gradient.add_(column == labels.unsqueeze(-1), alpha=-1.0)
    gradient.mul_(weights.unsqueeze(-1))
    if vocabulary.valid < vocabulary.columns:
        gradient[..., vocabulary.valid :] = 0.0
    return gradient.to(logits.dtype)


def vocab_parallel_cross_entropy(logits: Tensor, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Each token's loss, float32 [b, s], from this rank's logits [b, s, v]."""
    found: Tensor = _CrossEntropy.apply(logits, labels, vocabulary)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropy(torch.autograd.Function):
    """Saves the logits as they are: no float32 ones live from the forward to the backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
        found, whole = losses(statistics(logits, labels, vocabulary), labels, vocabulary)
        ctx.save_for_backward(logits, labels, whole)
        ctx.vocabulary = vocabulary
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, whole = ctx.saved_tensors
        weights = token_weights(grads[0], labels, ctx.vocabulary)
        return logits_gradient(logits, labels, ctx.vocabulary, whole, weights), None, None


def _where_asked(values: Tensor, labels: Tensor, vocabulary: Vocabulary) -> Tensor:
    """Zero where the label is -100, NaN where it is no entry: to raise would wait for a device."""
    known = (labels >= 0) & (labels < vocabulary.size)
    return torch.where(labels == IGNORED, 0.0, torch.where(known, values, torch.nan))
