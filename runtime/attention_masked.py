"""Attention of whole sequences that torch differentiates: its own fused call, or under a mask."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_choice import Options
from .attention_explicit import BARRED, dropped, scores_of, weighted
from .positions import Positions
from .standalone import STANDALONE


def fused(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """q [b, s, n, d], k, v [b, s, g, d] -> [b, s, n, d].

    No mask tensor: the kernels that know causality by themselves (cuDNN, flash) are used.
    """
    q, k, v = _as_sdpa_takes_them(q, k, v)
    y = F.scaled_dot_product_attention(
        q,
        k,
        v,
        dropout_p=options.dropout,
        is_causal=options.causal,
        scale=options.scale,
        enable_gqa=True,
    )
    return _plain_gradient(y)


def masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    positions: Positions,
    options: Options,
    mask: Tensor | None,
    key: Tensor | None,
) -> Tensor:
    """q [b, s, n, d], k, v [b, s, g, d], sinks float32 [n] -> [b, s, n, d].

    ``key``: what dropout's draws hang on; None: torch's generator draws.
    """
    blocked = _blocked(positions, options.causal, options.window, mask)
    draws = None if key is None else (key, positions.places)
    if mask is None:  # a place sees itself at least
        return under(q, k, v, sinks, blocked, options, draws)
    # Kernels disagree on a row that sees nothing (zeros or NaN): it sees all, and is zeroed after.
    blind = blocked.all(-1, keepdim=True)
    y = under(q, k, v, sinks, blocked & ~blind, options, draws)
    return y.masked_fill(blind.transpose(1, 2), 0.0)


def under(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    blocked: Tensor,
    options: Options,
    draws: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """q [b, s, n, d], k, v [b, t, g, d], blocked [1 or b, 1 or n, s, t] -> [b, s, n, d].

    ``draws``: the key and the places [s] of queries and keys that dropout's draws hang on; None:
    torch's generator draws.
    """
    q, k, v = _as_sdpa_takes_them(q, k, v)
    if options.softcap is None and sinks is None and draws is None:
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=~blocked,
            dropout_p=options.dropout,
            scale=options.scale,
            enable_gqa=True,
        )
        return _plain_gradient(y)
    scores = scores_of(q, k, options)
    scores = scores.masked_fill(blocked, BARRED)
    weights = scores.softmax(-1)
    if draws is not None:
        key, places = draws
        weights = dropped(weights, key, places, places, options)
    elif options.dropout > 0:
        weights = F.dropout(weights, options.dropout)
    y = weighted(weights.to(v.dtype), v)
    if sinks is None:
        return y.transpose(1, 2)
    # One more column in the softmax multiplies all others by sum exp / (sum exp + exp(sink)).
    kept = (scores.logsumexp(-1, keepdim=True) - sinks[:, None, None]).sigmoid()
    return (y * kept).to(v.dtype).transpose(1, 2)


def _as_sdpa_takes_them(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q [b, s, n, d] as [b, n, s, d]; k, v [b, s, g, d] as [b, g, s, d].

    In float32 on a GPU [b, n, s, d]: the one fused kernel there (efficient) knows no groups, and
    torch would fall back to scores in memory, 17 GB a layer at 2 x 8192 places and 32 heads.
    """
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    repeats = q.shape[1] // k.shape[1]
    # Its fused kernel there knows no groups, and scores in memory would be large.
    if q.is_cuda and q.dtype == torch.float32 and repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    return q, k, v


class _PlainGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].contiguous()


def _plain_gradient(y: Tensor) -> Tensor:
    """y [b, n, s, d] as [b, s, n, d], whose gradient reaches the kernel in one layout only.

    torch caches cuDNN's backward by the strides of q, k, v and mask and forgets the gradient's: a
    second layout in one process silently gives wrong gradients (2.11, seen on an H200). Copies
    nothing where the gradient is contiguous, as behind a linear layer.
    """
    if STANDALONE:
        return y.transpose(1, 2)
    plain = _PlainGradient.apply(y.transpose(1, 2))  # type: ignore[no-untyped-call]
    return cast(Tensor, plain)


def _blocked(positions: Positions, causal: bool, window: int | None, mask: Tensor | None) -> Tensor:
    """Bool [1 or b, 1 or n, s, s]: True where the query of a row may not attend a column's key."""
    places, starts = positions.places, positions.starts
    blocked = barred(places, places, causal=causal, window=window)
    if starts is not None:
        blocked = blocked | (starts[:, None, :, None] != starts[:, None, None, :])
    if mask is not None:
        blocked = blocked | mask
    return blocked[(None,) * (4 - blocked.dim())]


def barred(queries: Tensor, keys: Tensor, *, causal: bool, window: int | None) -> Tensor:
    """Bool [s, t]: True where the query of a row may not attend a column's key, by their places."""
    back = queries[:, None] - keys[None, :]
    blocked = back < 0 if causal else torch.zeros_like(back, dtype=torch.bool)
    return blocked if window is None else blocked | (back >= window)
