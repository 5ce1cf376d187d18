"""Scaled dot-product attention with the options that decoders use."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import apart
from .mesh import Mesh
from .positions import Positions


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    mesh: Mesh,
    *,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v for this rank's heads: q [b, s, n, d], k, v [b, s, g, d].

    Query head i attends over key/value head i // (n / g).

    - ``causal``: a place sees itself and those before it.
    - ``window``: a place sees at most so many places back, itself included.
    - ``softcap``: scores become softcap * tanh(score / softcap) (Gemma 2, arXiv 2408.00118).
    - ``sinks`` [n]: one more logit per head takes part in the softmax and is dropped (gpt-oss).
    - ``dropout``: the probability to use now (0.0 in eval), drawn from torch's generator, apart on
      each tp rank: its heads are its own.
    - ``scale``: 1 / sqrt(d) where None.
    - ``mask``: bool, broadcastable to [b, n, s, s], True where a query may NOT attend a key;
      it adds to ``causal`` and ``window``.

    A place that may attend nothing gets zeros. No collective runs: heads are whole on a rank, and
    a mesh that cuts the sequence of one attention (cp) is refused when it is made.
    Raises ValueError for shapes that do not fit and options out of range, TypeError for a mask
    that is not bool.
    """
    _check(q, k, v, positions, window, softcap, sinks, mask)
    with nullcontext() if dropout == 0.0 else apart(mesh.tp, q.device):
        return _attend(q, k, v, positions, causal, window, softcap, sinks, dropout, scale, mask)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    causal: bool,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
    dropout: float,
    scale: float | None,
    mask: Tensor | None,
) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # [b, n, s, d], [b, g, s, d]
    if window is None and softcap is None and sinks is None and mask is None:
        # No mask tensor: the kernels that know causality by themselves (cuDNN, flash) are used.
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=True
        )
        return _plain_gradient(y)
    blocked = _blocked(positions.places, causal, window, mask)
    if mask is None:  # a place sees itself at least
        return _masked(q, k, v, blocked, softcap, sinks, dropout, scale)
    # Kernels disagree on a row that sees nothing (zeros or NaN): it sees all, and is zeroed after.
    blind = blocked.all(-1, keepdim=True)
    y = _masked(q, k, v, blocked & ~blind, softcap, sinks, dropout, scale)
    return y.masked_fill(blind.transpose(1, 2), 0.0)


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocked: Tensor,
    softcap: float | None,
    sinks: Tensor | None,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """q [b, n, s, d], k, v [b, g, s, d], blocked [1 or b, 1 or n, s, s] -> [b, s, n, d]."""
    if softcap is None and sinks is None:
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=~blocked, dropout_p=dropout, scale=scale, enable_gqa=True
        )
        return _plain_gradient(y)
    heads, length, head_dim = q.shape[1:]
    # The query heads of one key/value head follow each other: one product serves them all.
    q = q.reshape(q.shape[0], k.shape[1], -1, head_dim)  # [b, g, n / g * s, d]
    scores = (q @ k.transpose(-1, -2)).view(-1, heads, length, length).float()
    scores = scores * (head_dim**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    # Finite, so that no gradient can be NaN; exp of it is zero all the same.
    scores = scores.masked_fill(blocked, torch.finfo(torch.float32).min)
    weights = F.dropout(scores.softmax(-1), dropout).to(v.dtype)
    y = (weights.view(q.shape[0], k.shape[1], -1, length) @ v).view(-1, heads, length, v.shape[-1])
    if sinks is None:
        return y.transpose(1, 2)
    # One more column in the softmax multiplies all others by sum exp / (sum exp + exp(sink)).
    # In q's dtype first, as FSDP would hand it over: with and without it is one model.
    sinks = sinks.to(q.dtype).float()[:, None, None]
    kept = (scores.logsumexp(-1, keepdim=True) - sinks).sigmoid()
    return (y * kept).to(v.dtype).transpose(1, 2)


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
    plain = _PlainGradient.apply(y.transpose(1, 2))  # type: ignore[no-untyped-call]
    return cast(Tensor, plain)


def _blocked(ids: Tensor, causal: bool, window: int | None, mask: Tensor | None) -> Tensor:
    """Bool [1 or b, 1 or n, s, s]: True where the query of a row may not attend a column's key."""
    back = ids[:, None] - ids[None, :]
    blocked = back < 0 if causal else torch.zeros_like(back, dtype=torch.bool)
    if window is not None:
        blocked = blocked | (back >= window)
    if mask is not None:
        blocked = blocked | mask
    return blocked[(None,) * (4 - blocked.dim())]


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
    mask: Tensor | None,
) -> None:
    b, s, n, d = q.shape
    g = k.shape[2]
    if k.shape != (b, s, g, d) or v.shape[:3] != (b, s, g) or n % g:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit: they have to "
            f"be [b, s, n, d], [b, s, g, d] and [b, s, g, d] with g dividing n"
        )
    if positions.places.shape[0] != s:
        raise ValueError(f"{positions.places.shape[0]} positions were given for a sequence of {s}")
    if window is not None and window < 1:
        raise ValueError(f"window={window} has to be 1 at least: a place sees itself")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap={softcap} has to be above 0; None means no cap")
    if sinks is not None and sinks.shape != (n,):
        raise ValueError(f"sinks has shape {list(sinks.shape)}, and this rank has {n} heads")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}; it has to be bool, True where attention is barred")
    fits = mask.dim() <= 4 and all(
        have in (1, want) for have, want in zip(reversed(mask.shape), (s, s, n, b), strict=False)
    )
    if not fits:
        raise ValueError(f"mask {list(mask.shape)} does not broadcast to {[b, n, s, s]}")
