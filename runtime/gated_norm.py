"""The norm after a state space: gated, and over the channels of a group."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .linear import local_parameter
from .mesh import Mesh
from .parameters import Constant, ParameterRecord, declare


class GatedRMSNorm(nn.Module):
    """RMS norm of x * silu(gate), over the channels of each group by themselves, times a weight.

    Computed in float32, the result is in x's dtype. The channels are cut over tp, between groups:
    no collective runs. Saved: x and gate, and what float32 leaves between the operations.
    ``weight`` [channels / tp] is float32. It has no storage until ``materialize``.

    Raises ValueError where tp does not divide the groups.
    """

    def __init__(self, channels: int, groups: int, mesh: Mesh, eps: float = 1e-5) -> None:
        super().__init__()
        if groups % mesh.tp.size:
            raise ValueError(f"tp={mesh.tp.size} does not divide {groups} groups of channels")
        self.channels = channels
        self.groups = groups
        self.eps = eps
        self.weight = local_parameter(channels // mesh.tp.size)
        declare(self, "weight", ParameterRecord((channels,), dim=0, law=Constant(1.0)))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """Both [b, s, c], c of the channels on this rank -> the same shape."""
        size = self.channels // self.groups
        y = torch.unflatten(x.float() * F.silu(gate.float()), -1, (-1, size))
        y = F.rms_norm(y, (size,), None, self.eps).flatten(-2)
        return (y * self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.channels}, groups={self.groups}, eps={self.eps}"
