"""What attention exchanges over cp: keys and values gathered or sent round, or heads for places."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .collectives import all_to_all, start_all_gather, start_all_to_all, start_reduce_scatter, wait
from .mesh import Axis


def start_gathering(k: Tensor, v: Tensor, axis: Axis) -> Tensor:
    """Starts the gather of all ranks' keys and values (no autograd); see ``gathered``."""
    return start_all_gather(_flat(k, v), axis)


def gathered(coming: Tensor, k: Tensor, v: Tensor, axis: Axis) -> tuple[Tensor, Tensor]:
    """Keys and values of the whole sequence, in its order: [b, s * cp, g, d]."""
    both = wait(coming).view(axis.size, -1)
    keys, values = torch.split(both, [k.numel(), v.numel()], 1)
    return (
        in_order(keys.view(-1, *k.shape)),
        in_order(values.view(-1, *v.shape)),
    )


def scattered(dk: Tensor, dv: Tensor, axis: Axis) -> tuple[Tensor, Tensor]:
    """The adjoint of a gather: this rank's part [b, s, g, d] of the sum over cp."""
    parts = [dealt_out(x, axis.size) for x in (dk, dv)]
    both = torch.cat([part.flatten(1) for part in parts], 1).flatten()
    return _split(wait(start_reduce_scatter(both, axis)), parts[0][0], parts[1][0])


def start_turn(k: Tensor, v: Tensor, axis: Axis) -> Tensor:
    """Starts to send keys and values to the next rank of the ring (no autograd)."""
    flat = _flat(k, v)
    sent, received = [0] * axis.size, [0] * axis.size
    sent[(axis.rank + 1) % axis.size] = flat.numel()
    received[(axis.rank - 1) % axis.size] = flat.numel()
    return start_all_to_all(flat, axis, received, sent)


def turned(coming: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """What came from the rank before, in the shapes of k and v."""
    return _split(wait(coming), k, v)


def heads_for_places(q: Tensor, k: Tensor, v: Tensor, axis: Axis) -> tuple[Tensor, Tensor, Tensor]:
    """This rank's places of all heads to all places of its heads, in one all-to-all.

    q [b, s, n, d] -> [b, s * cp, n / cp, d]; k, v likewise, with each head repeated first as often
    as cp and g need to divide. Backward: the reverse exchange. Raises ValueError where cp does not
    divide n.
    """
    heads, groups = q.shape[2], k.shape[2]
    if heads % axis.size:
        raise ValueError(
            f"cp_comm_type a2a cuts the {heads} query heads of a rank over cp={axis.size}, which "
            f"does not divide them; all_gather and p2p cut no heads"
        )
    repeats = math.lcm(groups, axis.size) // groups
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 2), v.repeat_interleave(repeats, 2)
    parts = [x.view(*x.shape[:2], axis.size, -1, x.shape[3]).movedim(2, 0) for x in (q, k, v)]
    came = all_to_all(torch.cat([part.flatten(1) for part in parts], 1), axis)
    pieces = torch.split(came, [part[0].numel() for part in parts], 1)
    wholes = [in_order(piece.view(part.shape)) for piece, part in zip(pieces, parts, strict=True)]
    return wholes[0], wholes[1], wholes[2]


def places_for_heads(y: Tensor, axis: Axis) -> Tensor:
    """The way back, one all-to-all: y [b, s * cp, n / cp, d] -> [b, s, n, d]."""
    came = all_to_all(dealt_out(y, axis.size), axis)  # [cp, b, s, n / cp, d], by heads
    return came.movedim(0, 2).flatten(2, 3)


def in_order(parts: Tensor) -> Tensor:
    """Each rank's zigzag part [cp, b, s, ..] -> the whole sequence [b, s * cp, ..]."""
    early, late = parts.chunk(2, 2)
    return torch.cat((early, late.flip(0))).movedim(0, 1).flatten(1, 2)


def dealt_out(x: Tensor, cp: int) -> Tensor:
    """The inverse of ``in_order``: [b, s * cp, ..] -> [cp, b, s, ..]."""
    early, late = x.view(x.shape[0], 2 * cp, -1, *x.shape[2:]).movedim(1, 0).chunk(2)
    return torch.cat((early, late.flip(0)), 2)


def _flat(k: Tensor, v: Tensor) -> Tensor:
    return torch.cat((k.flatten(), v.flatten()))


def _split(flat: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = torch.split(flat, [k.numel(), v.numel()])
    return keys.view(k.shape), values.view(v.shape)
