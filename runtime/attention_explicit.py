"""Attention of a block from matrix products: any mask, any device, scores in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .attention_blocks import Block
from .attention_choice import Options
from .draws import kept_scores

BARRED = torch.finfo(torch.float32).min  # finite, so that nothing can be NaN; exp of it is zero


class Rules(NamedTuple):
    """What holds for every block of one attention.

    ``starts`` [b, S whole]: where documents begin; ``key``: what dropout's draws hang on.
    """

    options: Options
    starts: Tensor | None = None
    key: Tensor | None = None


def scores_of(q: Tensor, k: Tensor, options: Options) -> Tensor:
    """q [b, n, s, d], k [b, g, t, d] -> float32 [b, n, s, t]."""
    scores = _grouped(q, k) @ k.transpose(-1, -2)
    scores = scores.view(*q.shape[:3], k.shape[2]).float() * options.scale
    if options.softcap is not None:
        scores = options.softcap * (scores / options.softcap).tanh()
    return scores


def weighted(weights: Tensor, v: Tensor) -> Tensor:
    """weights [b, n, s, t] times v [b, g, t, d] -> [b, n, s, d]."""
    return (_grouped(weights, v) @ v).view(*weights.shape[:3], v.shape[-1])


def forward(q: Tensor, k: Tensor, v: Tensor, block: Block, rules: Rules) -> tuple[Tensor, Tensor]:
    """q [b, s, n, d], k, v [b, t, g, d] -> out [b, s, n, d] and its log-sum-exp [b, n, s]."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    scores = _barred(scores_of(q, k, rules.options), block, rules)
    lse = scores.logsumexp(-1)
    weights = _dropped((scores - lse[..., None]).exp(), block, rules)
    return weighted(weights.to(v.dtype), v).transpose(1, 2), lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    block: Block,
    rules: Rules,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k, v; ``out`` and ``lse`` over all keys, not only this block's."""
    grad, q, k, v, out = (x.transpose(1, 2) for x in (grad, q, k, v, out))
    capped = scores_of(q, k, rules.options)
    weights = (_barred(capped, block, rules) - lse[..., None]).exp()
    dv = _by_key(_dropped(weights, block, rules).to(grad.dtype), grad, v)
    of_weights = (_grouped(grad, v) @ v.transpose(-1, -2)).view_as(weights).float()
    of_weights = _dropped(of_weights, block, rules)
    along = (grad.float() * out.float()).sum(-1, keepdim=True)  # [b, n, s, 1]
    of_scores = weights * (of_weights - along) * rules.options.scale
    if rules.options.softcap is not None:
        of_scores = of_scores * (1 - (capped / rules.options.softcap) ** 2)
    of_scores = of_scores.to(q.dtype)
    dq, dk = weighted(of_scores, k), _by_key(of_scores, q, k)
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


def _grouped(x: Tensor, k: Tensor) -> Tensor:
    """[b, n, s, ..] -> [b, g, n / g * s, ..]: one product serves a key head's query heads."""
    return x.reshape(x.shape[0], k.shape[1], -1, x.shape[-1])


def _by_key(weights: Tensor, x: Tensor, k: Tensor) -> Tensor:
    """weights [b, n, s, t], x [b, n, s, d] -> [b, g, t, d]: summed over queries and a group."""
    return _grouped(weights, k).transpose(-1, -2) @ _grouped(x, k)


def _barred(scores: Tensor, block: Block, rules: Rules) -> Tensor:
    length, others = scores.shape[-2:]
    device = scores.device
    hidden: Tensor | None = None
    if not block.whole:
        i = torch.arange(length, device=device)[:, None] + others - length
        ahead = torch.arange(others, device=device) - i
        if block.right is not None:
            hidden = ahead > block.right
        if block.left is not None:
            hidden = ahead < -block.left if hidden is None else hidden | (ahead < -block.left)
    if rules.starts is not None:
        mine = rules.starts[:, None, block.q.place : block.q.place + length, None]
        other = rules.starts[:, None, None, block.k.place : block.k.place + others]
        hidden = mine != other if hidden is None else hidden | (mine != other)
    return scores if hidden is None else scores.masked_fill(hidden, BARRED)


def _dropped(x: Tensor, block: Block, rules: Rules) -> Tensor:
    """x [b, n, s, t] times what dropout leaves."""
    if rules.key is None:
        return x
    queries = torch.arange(block.q.place, block.q.place + x.shape[2], device=x.device)
    keys = torch.arange(block.k.place, block.k.place + x.shape[3], device=x.device)
    return dropped(x, rules.key, queries, keys, rules.options)


def dropped(x: Tensor, key: Tensor, queries: Tensor, keys: Tensor, options: Options) -> Tensor:
    """Weights x [b, n, s, t] of queries and keys at these places, after a hashed dropout."""
    keep = kept_scores(key, x.shape[:2], options.first_head, queries, keys, options.dropout)
    return torch.where(keep, x * (1 / (1 - options.dropout)), 0.0)
