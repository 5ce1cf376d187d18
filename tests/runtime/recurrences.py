"""The mixers' recurrences, place by place, in float64: what their chunks have to equal."""

from __future__ import annotations

import torch
from torch import Tensor


def starts_of(length: int, begins: list[int]) -> Tensor:
    """[2, length]: where each place's document begins; the second sequence's are shifted by 1."""
    places = torch.arange(length)
    rows = []
    for shift in (0, 1):
        first = torch.zeros(length, dtype=torch.bool)
        first[[0, *((begin + shift) % length for begin in begins)]] = True
        rows.append(torch.where(first, places, 0).cummax(0).values)
    return torch.stack(rows)


def kept(starts: Tensor | None, place: int) -> Tensor | float:
    """What a state is multiplied by: 0 where a document begins."""
    return 1.0 if starts is None else (starts[:, place] != place).double()[:, None, None]


def state_space(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, starts: Tensor | None
) -> Tensor:
    groups, heads = x.shape[2:4]
    state = x.new_zeros(x.shape[0], groups, heads, x.shape[-1], b.shape[-1])
    found = []
    for i in range(x.shape[1]):
        decay = (dt[:, i] * a.view(groups, heads)).exp() * kept(starts, i)
        added = torch.einsum("bgm,bgmp,bgk->bgmpk", dt[:, i], x[:, i], b[:, i])
        state = state * decay[..., None, None] + added
        read = torch.einsum("bgmpk,bgk->bgmp", state, c[:, i])
        found.append(read + d.view(groups, heads, 1) * x[:, i])
    return torch.stack(found, 1)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, starts: Tensor | None
) -> Tensor:
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    state = v.new_zeros(*v.shape[:1], *v.shape[2:4], q.shape[-1], v.shape[-1])
    found = []
    for i in range(v.shape[1]):
        state = state * (log_decay[:, i].exp() * kept(starts, i))[..., None, None]
        known = torch.einsum("bgmde,bgd->bgme", state, k[:, i])
        corrected = beta[:, i, ..., None] * (v[:, i] - known)
        state = state + torch.einsum("bgd,bgme->bgmde", k[:, i], corrected)
        found.append(torch.einsum("bgmde,bgd->bgme", state, q[:, i]) / q.shape[-1] ** 0.5)
    return torch.stack(found, 1)


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, starts: Tensor | None) -> Tensor:
    """x [b, s, c], weight [c, 1, kernel]."""
    kernel, found = weight.shape[-1], []
    for i in range(x.shape[1]):
        y = torch.zeros_like(x[:, i])
        for back in range(min(kernel, i + 1)):
            inside = 1.0 if starts is None else (i - back >= starts[:, i]).double()[:, None]
            y = y + x[:, i - back] * weight[:, 0, kernel - 1 - back] * inside
        found.append(y if bias is None else y + bias)
    return torch.stack(found, 1)
