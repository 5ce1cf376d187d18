"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and their long-context scalings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .positions import Positions


@dataclass(frozen=True)
class LinearScaling:
    """Every position divided by ``factor`` (position interpolation, arXiv 2306.15595)."""

    factor: float

    def __post_init__(self) -> None:
        _check_positive(self, "factor")


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's: slow waves are slowed further by ``factor``, fast ones stay, a ramp between.

    A wave is slow when it turns fewer than ``low_freq_factor`` times in the original context, fast
    when more than ``high_freq_factor`` times.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        _check_positive(self, "factor", "low_freq_factor", "original_max_position_embeddings")
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"Llama3Scaling.high_freq_factor={self.high_freq_factor} has to be above "
                f"low_freq_factor={self.low_freq_factor}"
            )


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071): interpolates slow waves, keeps fast ones, a ramp over channels.

    cos and sin are multiplied by m(mscale) / m(mscale_all_dim) with
    m(a) = 0.1 * a * ln(factor) + 1, as DeepSeek and Megatron do. ``truncate`` rounds the ends of
    the ramp to whole channels; gpt-oss does not.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0
    truncate: bool = True

    def __post_init__(self) -> None:
        _check_positive(self, "factor", "original_max_position_embeddings", "beta_slow")
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"YarnScaling.beta_fast={self.beta_fast} has to be at least "
                f"beta_slow={self.beta_slow}"
            )


Scaling = LinearScaling | Llama3Scaling | YarnScaling


def rotary_tables(
    positions: Positions,
    dim: int,
    base: float,
    *,
    interleaved: bool = False,
    scaling: Scaling | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin, each float32 [s, dim], of position * base ** (-2i / dim) for channel pair i.

    Where documents restart the positions they are [b, s, dim].
    Pair i is channels (i, i + dim / 2), or (2i, 2i + 1) where ``interleaved``.
    Raises ValueError where dim is odd.
    """
    if dim % 2:
        raise ValueError(f"rotary positions turn channels in pairs, and dim={dim} is odd")
    device = positions.ids.device
    exponents = torch.arange(0, dim, 2, dtype=torch.int64, device=device).float() / dim
    frequencies = _scaled(1.0 / base**exponents, scaling, dim, base)
    angles = positions.ids.float()[..., None] * frequencies  # [.., s, dim / 2]
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    if not isinstance(scaling, YarnScaling):
        return angles.cos(), angles.sin()
    amplitude = _amplitude(scaling)
    return angles.cos() * amplitude, angles.sin() * amplitude


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Turns the first channels of each head of x [b, s, n, d] by the tables; the rest passes.

    Computed in float32, returned in x's dtype.
    Raises ValueError where the tables are wider than a head or of another length than x.
    """
    if cos.shape[-2] != x.shape[1] or cos.shape[-1] > x.shape[-1]:
        raise ValueError(
            f"rotary tables of {cos.shape[-2]} positions x {cos.shape[-1]} channels do not fit "
            f"heads of {x.shape[1]} positions x {x.shape[-1]} channels: the positions have to be "
            "equal, the channels no more"
        )
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # [s, 1, dim], or [b, s, 1, dim]
    turned, rest = x[..., : cos.shape[-1]].float(), x[..., cos.shape[-1] :]
    quarter = _quarter_turn(turned, interleaved)
    turned = (turned * cos + quarter * sin).to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), -1)


def _quarter_turn(x: Tensor, interleaved: bool) -> Tensor:
    """(a, b) -> (-b, a) for each pair of channels."""
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((-b, a), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def _scaled(frequencies: Tensor, scaling: Scaling | None, dim: int, base: float) -> Tensor:
    if scaling is None:
        return frequencies
    if isinstance(scaling, LinearScaling):
        return frequencies / scaling.factor
    if isinstance(scaling, Llama3Scaling):
        return _llama3(frequencies, scaling)
    return _yarn(frequencies, scaling, dim, base)


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    turns = frequencies * (scaling.original_max_position_embeddings / (2 * math.pi))
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies


def _yarn(frequencies: Tensor, scaling: YarnScaling, dim: int, base: float) -> Tensor:
    def channel(turns: float) -> float:
        """The pair, as a fraction, that turns so many times in the original context."""
        wavelength = scaling.original_max_position_embeddings / (turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(base))

    low, high = channel(scaling.beta_fast), channel(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    pairs = torch.arange(dim // 2, dtype=torch.float32, device=frequencies.device)
    keep = 1 - ((pairs - low) / (high - low)).clamp(0, 1)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies


def _amplitude(scaling: YarnScaling) -> float:
    """What cos and sin are multiplied by; above 1 it sharpens the attention of a longer context."""
    if scaling.factor <= 1:
        return 1.0
    growth = 0.1 * math.log(scaling.factor)
    return (scaling.mscale * growth + 1) / (scaling.mscale_all_dim * growth + 1)


def _check_positive(scaling: Scaling, *names: str) -> None:
    for name in names:
        if getattr(scaling, name) <= 0:
            raise ValueError(
                f"{type(scaling).__name__}.{name}={getattr(scaling, name)} has to be above 0"
            )
