"""Initial values as a pure function of (seed, parameter name, global index).

Any rank computes any slice of any parameter alone, so values depend on no layout and no order.
The function: splitmix64 (Steele, Lea, Flood 2014) of the global flat index under a key made of seed
and name, its two halves as two uniform numbers, Box-Muller.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from .draws import MIX1, MIX2, STEP
from .parameters import Constant, Law, LocalPart, Normal, Uniform

_CHUNK = 1 << 18  # entries at a time: the hash needs several int64 and float64 of each


def name_key(seed: int, name: str) -> int:
    """64 signed bits that stand for a seed and a name."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    """x ^= x >>> bits, in place; torch's shift of int64 keeps the sign, so mask it off."""
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (64 - bits)) - 1))


def splitmix64(index: Tensor, key: int) -> Tensor:
    """A hash of each int64 index, by int64 arithmetic that wraps around. Overwrites ``index``."""
    x = index.add_(1).mul_(STEP).add_(key)
    x = _xor_shift(x, 30).mul_(MIX1)
    x = _xor_shift(x, 27).mul_(MIX2)
    return _xor_shift(x, 31)


def standard_normal(index: Tensor, key: int) -> Tensor:
    """A float64 draw from N(0, 1) for each global flat index. Overwrites ``index``.

    Worked out in float64, so that what two math libraries' last digits differ in is gone once the
    value is rounded to float32.
    """
    bits = splitmix64(index, key)
    low = (bits & 0xFFFFFFFF).double().mul_(2 * math.pi / 2**32)
    high = (bits >> 32).bitwise_and_(0xFFFFFFFF).double().add_(1).mul_(2.0**-32)  # in (0, 1]
    return high.log_().mul_(-2).sqrt_().mul_(low.cos_())


def standard_uniform(index: Tensor, key: int) -> Tensor:
    """A float64 draw from [0, 1) for each global flat index. Overwrites ``index``."""
    return (splitmix64(index, key) >> 11).bitwise_and_((1 << 53) - 1).double().mul_(2.0**-53)


def _flat_index(
    shape: tuple[int, ...], part: LocalPart, start: int, rows: int, device: torch.device
) -> Tensor:
    """The global flat index of a part's rows ``start`` to ``start + rows``, in their shape."""
    index = torch.zeros((), dtype=torch.int64, device=device)
    stride = math.prod(shape)
    for dim, size in enumerate(shape):
        stride //= max(size, 1)
        first = part.offset[dim] + (start if dim == 0 else 0)
        length = rows if dim == 0 else part.extent[dim]
        along = torch.arange(first, first + length, dtype=torch.int64, device=device) * stride
        index = index.unsqueeze(-1) + along
    return index


@torch.no_grad()
def fill(
    target: Tensor,
    law: Law,
    *,
    shape: tuple[int, ...],
    part: LocalPart,
    seed: int,
    name: str,
) -> None:
    """Fills ``target``, the part of a parameter of global ``shape``, by its law."""
    if isinstance(law, Constant):
        target.fill_(law.value)
        return
    key = name_key(seed, name)
    if not shape:
        index = torch.zeros(1, dtype=torch.int64, device=target.device)
        target.copy_(_drawn(index, key, law).view(()))
        return
    rows = max(1, _CHUNK // max(1, math.prod(part.extent[1:])))
    for start in range(0, part.extent[0], rows):
        length = min(rows, part.extent[0] - start)
        index = _flat_index(shape, part, start, length, target.device).contiguous()
        target.narrow(0, start, length).copy_(_drawn(index, key, law))


def _drawn(index: Tensor, key: int, law: Normal | Uniform) -> Tensor:
    """A float64 draw by a law for each global flat index. Overwrites ``index``."""
    if isinstance(law, Normal):
        return standard_normal(index, key).mul_(law.std).add_(law.mean)
    values = standard_uniform(index, key).mul_(law.high - law.low).add_(law.low)
    if law.then == "log":
        return values.log_()
    if law.then == "step_size":
        return values.exp_().expm1_().log_()  # the inverse of softplus
    return values
