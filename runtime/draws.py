"""Random draws that are a hash of where an element stands, so that no layout changes them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def signed(constant: int, bits: int) -> int:
    """The signed integer with these bits, as torch's integer types are signed."""
    return constant - (1 << bits) if constant >= 1 << (bits - 1) else constant


# The constants of splitmix64 (Steele, Lea, Flood 2014).
STEP = signed(0x9E3779B97F4A7C15, 64)
MIX1 = signed(0xBF58476D1CE4E5B9, 64)
MIX2 = signed(0x94D049BB133111EB, 64)


def kept(row: Tensor, column: Tensor, p: float) -> Tensor:
    """Bool: an element is kept where its hash, an int32, is not among the lowest p.

    ``row``: int64 keys, well mixed; ``column``: int32 indexes; they broadcast to the result. Two
    rounds of a 32-bit hash (lowbias32 of nullprogram.com/blog/2018/07/31), with one half of the
    row's key before each: the work on the whole shape is in int32. Its last step, which would only
    touch the lower half, is left out: the comparison is decided by the upper.
    """
    bits = column * signed(0x9E3779B1, 32) ^ (row >> 32).to(torch.int32)
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D + ((row << 32) >> 32).to(torch.int32)
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * signed(0x846CA68B, 32)
    return bits >= min(round(p * (1 << 32)) - (1 << 31), (1 << 31) - 1)


def mix64(x: Tensor) -> Tensor:
    """A step of splitmix64 (Steele et al. 2014) on int64, whose products wrap around."""
    x = x + STEP
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * MIX1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * MIX2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def common_key(device: torch.device) -> Tensor:
    """An int64 scalar from torch's generator, which is alike on all ranks of tp and cp."""
    return torch.randint(2**31, (), device=device)


def kept_scores(
    key: Tensor,
    shape: Sequence[int],
    first_head: int,
    queries: Tensor,
    keys: Tensor,
    p: float,
) -> Tensor:
    """Bool [b, n, nq, nk]: which attention weights stay, for ``shape`` [b, n].

    By sequence, head and places: ``first_head`` is the number of the first among all the model's,
    ``queries`` [nq] and ``keys`` [nk] are places of the whole sequence: no layout changes it.
    """
    sequence = torch.arange(shape[0], device=key.device)[:, None]
    head = torch.arange(first_head, first_head + shape[1], device=key.device)
    row = mix64(mix64(key ^ sequence) ^ head)
    row = mix64(row[..., None] ^ queries)[..., None]  # [b, n, nq, 1]
    return kept(row, keys.to(torch.int32), p)
