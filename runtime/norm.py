"""Normalisation over the hidden dimension."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .linear import local_parameter
from .parameters import Constant, ParameterRecord, declare


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension (arXiv 1607.06450).

    Statistics are computed in float32, the result is in x's dtype. No collective runs: each place
    is whole on a rank. ``zero_centered``: the weight starts at 0 and acts as 1 + weight.
    Saved on a GPU: x, mean and 1 / deviation in float32; where ``zero_centered``, x and the
    weight in float32. ``bias=False``: none is added, and there is none.
    ``weight`` and ``bias`` [hidden_size] are float32, cast to x's dtype. They have no storage until
    ``materialize``.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        *,
        zero_centered: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.zero_centered = zero_centered
        self.weight = local_parameter(hidden_size)
        start = Constant(0.0 if zero_centered else 1.0)
        declare(self, "weight", ParameterRecord((hidden_size,), law=start))
        self.bias = local_parameter(hidden_size) if bias else None
        if bias:
            declare(self, "bias", ParameterRecord((hidden_size,), law=Constant(0.0)))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self.zero_centered:
            # 1 + weight would lose in bfloat16 what makes a small weight worth storing.
            y = F.layer_norm(
                x.float(),
                (self.hidden_size,),
                1 + weight.float(),
                None if bias is None else bias.float(),
                self.eps,
            )
            return y.to(x.dtype)
        return F.layer_norm(x, (self.hidden_size,), weight, bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.hidden_size}, eps={self.eps}, zero_centered={self.zero_centered}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv 1910.07467).

    The mean is computed in float32, the result is in x's dtype. No collective runs: each place is
    whole on a rank. ``zero_centered``: the weight starts at 0 and acts as 1 + weight (Gemma's).
    Saved on a GPU: x, and 1 / root in float32; where ``zero_centered``, x and the
    weight in float32.
    ``weight`` [hidden_size] is float32, cast to x's dtype. It has no storage until ``materialize``.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-5, *, zero_centered: bool = False) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.zero_centered = zero_centered
        self.weight = local_parameter(hidden_size)
        start = Constant(0.0 if zero_centered else 1.0)
        declare(self, "weight", ParameterRecord((hidden_size,), law=start))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype)
        if self.zero_centered:
            # 1 + weight would lose in bfloat16 what makes a small weight worth storing.
            y = F.rms_norm(x.float(), (self.hidden_size,), 1 + weight.float(), self.eps)
            return y.to(x.dtype)
        return F.rms_norm(x, (self.hidden_size,), weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}, zero_centered={self.zero_centered}"
