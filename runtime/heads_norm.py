"""Normalisation over the channels of all heads together, which tp may cut."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .collectives import all_reduce
from .linear import local_parameter
from .mesh import Mesh
from .parameters import Constant, ParameterRecord, declare


class HeadsRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, the mean over all heads' channels (OLMo 2's q and k).

    x is [b, s, n / tp, d], whole heads of this rank, and so is the result, in x's dtype. Computed
    in float32. ``zero_centered``: the weight starts at 0 and acts as 1 + weight.

    | tp > 1 | collective | shape |
    |---|---|---|
    | forward | all-reduce of the sums of squares, float32 | [b, s, 1, 1] |
    | backward | all-reduce of their gradients | [b, s, 1, 1] |

    ``weight`` [heads * head_dim / tp] is float32, cut as the heads are. It has no storage until
    ``materialize``. Raises ValueError where tp does not divide the heads.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        mesh: Mesh,
        eps: float = 1e-5,
        *,
        zero_centered: bool = False,
    ) -> None:
        super().__init__()
        if heads % mesh.tp.size:
            raise ValueError(f"HeadsRMSNorm: tp={mesh.tp.size} does not divide {heads} heads")
        self.heads = heads
        self.head_dim = head_dim
        self.mesh = mesh
        self.eps = eps
        self.zero_centered = zero_centered
        self.weight = local_parameter(heads * head_dim // mesh.tp.size)
        start = Constant(0.0 if zero_centered else 1.0)
        declare(self, "weight", ParameterRecord((heads * head_dim,), dim=0, law=start))

    def forward(self, x: Tensor) -> Tensor:
        # In x's dtype first, as all layers read their weights.
        weight = self.weight.to(x.dtype).float()
        if self.zero_centered:
            weight = 1 + weight
        return _normed(x, weight, self.heads * self.head_dim, self.eps, self.mesh)

    def extra_repr(self) -> str:
        return f"{self.heads}, {self.head_dim}, eps={self.eps}, zero_centered={self.zero_centered}"


def _normed(x: Tensor, weight: Tensor, size: int, eps: float, mesh: Mesh) -> Tensor:
    """``size``: channels of all ranks' heads together."""
    if mesh.tp.size == 1:
        flat = x.float().flatten(-2)
        return F.rms_norm(flat, (size,), weight, eps).view(x.shape).to(x.dtype)
    squares = all_reduce(x.float().square().sum((-2, -1), keepdim=True), mesh.tp)
    y = x.float() * (squares / size + eps).rsqrt()
    return (y * weight.view(x.shape[-2:])).to(x.dtype)
