"""What is left of a state after some places: the decays inside and between chunks of a sequence."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Decays(NamedTuple):
    """Of a sequence cut in z chunks of q places; n heads.

    - ``between`` [b, z, n, q, q]: what is left at place i of that which place j <= i adds;
    - ``since`` [b, z, n, q]: what is left at place i of the state before the chunk;
    - ``until`` [b, z, n, q]: what is left after the chunk of that which place j adds;
    - ``whole`` [b, z, n]: what is left after the chunk of the state before it;
    - ``chunks`` [b, n, z, z]: what is left before chunk i of that which chunk j < i adds.

    All are 0 where a document begins on the way.
    """

    between: Tensor
    since: Tensor
    until: Tensor
    whole: Tensor
    chunks: Tensor


def chunked(x: Tensor, size: int) -> Tensor:
    """[b, s, ..] -> [b, z, size, ..], filled up with zeros."""
    missing = -x.shape[1] % size
    if missing > 0:
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, missing))
    return torch.unflatten(x, 1, (-1, size))


def decays(log_decay: Tensor, size: int, starts: Tensor | None) -> Decays:
    """From the logarithm of each place's decay, float32 [b, s, n], in chunks of ``size``.

    ``starts`` [b, s]: where each place's document begins; None: nowhere but at 0.
    """
    logs = chunked(log_decay, size).movedim(3, 2)  # [b, z, n, q]
    total = logs.cumsum(-1)  # since the chunk began
    last = total[..., -1]  # [b, z, n]
    spans = _spans(logs)  # [b, z, n, q, q]
    # Before chunk i, of what chunk j < i adds: the chunks between the two.
    over = F.pad(_spans(last.movedim(2, 1))[..., :-1, :], (0, 0, 1, 0))  # [b, n, z, z]
    places = torch.arange(total.shape[1] * size, device=total.device)
    places = places.view(-1, size)  # [z, q]
    inside = places.unsqueeze(-1) >= places.unsqueeze(-2)  # [z, q, q]
    number = torch.arange(total.shape[1], device=total.device)
    earlier = number.unsqueeze(-1) > number  # [z, z]
    if starts is None:
        between = inside.unsqueeze(1)
        since = until = total.new_ones((), dtype=torch.bool)
        whole = since
        chunks = earlier
    else:
        begins = chunked(starts, size)  # [b, z, q]
        before = begins < places[:, :1]  # the document reaches back before the chunk
        between = (inside & (begins.unsqueeze(-1) <= places.unsqueeze(-2))).unsqueeze(2)
        since = before.unsqueeze(2)
        until = (begins[:, :, -1:] <= places).unsqueeze(2)
        whole = before[:, :, -1:]
        # The document at the end of the chunk before i has to hold the end of chunk j.
        ends = F.pad(begins[:, :-1, -1], (1, 0)).unsqueeze(-1) <= places[:, -1]  # [b, z, z]
        chunks = (earlier & ends).unsqueeze(1)
    return Decays(
        _left(spans, between),
        _left(total, since),
        _left(spans[..., -1, :], until),
        _left(last, whole),
        _left(over, chunks),
    )


def _spans(logs: Tensor) -> Tensor:
    """[.., q] -> [.., q, q]: at i, j the sum of the places after j up to i; 0 above the diagonal.

    Each by itself: the difference of two sums from the beginning is off by the rounding of those,
    which are many times larger where states decay fast.
    """
    places = torch.arange(logs.shape[-1], device=logs.device)
    later = places.unsqueeze(-1) > places  # [q, q]
    return (logs.unsqueeze(-1) * later).cumsum(-2)


def _left(log: Tensor, kept: Tensor) -> Tensor:
    # Before the exponential: a place that does not see another may be far above it.
    return log.masked_fill(~kept, -torch.inf).exp()
