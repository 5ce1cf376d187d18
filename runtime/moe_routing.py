"""The arithmetic of a router: logits, and which experts they choose."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .standalone import STANDALONE


class _RouterLogits(torch.autograd.Function):
    """A linear layer in a wider dtype than its input's, which saves the input as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype = dtype
        return F.linear(x.to(dtype), weight.to(dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        dy = grads[0]
        dx = dy @ weight.to(ctx.dtype)
        dw = dy.flatten(0, -2).t() @ x.to(ctx.dtype).flatten(0, -2)
        return dx.to(x.dtype), dw.to(weight.dtype), None


def router_logits(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """x W^T, plus a bias: [b, t, h] and [E, h] to [b, t, E] in ``dtype``, whatever x's is.

    The weight is rounded to x's dtype first, as of every layer; products and sums are in ``dtype``.
    Saves x and the weight as they are. No collective runs; W is whole on every rank.
    """
    if STANDALONE:
        logits = F.linear(x.to(dtype), weight.to(dtype))
    else:
        logits = _RouterLogits.apply(x, weight.to(x.dtype), dtype)  # type: ignore[no-untyped-call]
    return logits if bias is None else logits + bias.to(x.dtype).to(dtype)


def group_limited_topk(
    scores: Tensor, k: int, num_groups: int, group_topk: int
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest of ``scores`` [b, t, E] and their experts, [b, t, k] both, in few groups.

    The experts stand in ``num_groups`` groups of neighbours. A group counts as much as the sum of
    its ``k // group_topk`` highest scores, and only experts of the ``group_topk`` highest groups
    can be chosen (DeepSeek-V3, arXiv 2412.19437; the formula is Megatron-Core's).
    """
    grouped = scores.view(*scores.shape[:-1], num_groups, -1)
    worth = grouped.topk(k // group_topk).values.sum(-1)  # [b, t, groups]
    groups = worth.topk(group_topk).indices
    barred = torch.ones_like(worth, dtype=torch.bool).scatter(-1, groups, False)
    values, experts = grouped.masked_fill(barred[..., None], float("-inf")).flatten(-2).topk(k)
    return values, experts


def normalized(probs: Tensor) -> Tensor:
    """Each token's ``probs`` [b, t, k] divided by their sum; one alone stays as it is."""
    if probs.shape[-1] == 1:
        return probs
    return probs / (probs.sum(-1, keepdim=True) + 1e-20)
