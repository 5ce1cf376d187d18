"""A short convolution over the places of a sequence, each channel by itself."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .linear import local_parameter
from .mesh import Mesh
from .mixer_kernels import causal_conv, conv_kernel
from .parameters import ParameterRecord, Uniform, axis_cut, declare
from .positions import Positions
from .standalone import STANDALONE
from .whole_sequence import own_groups, refuse_decoding


class CausalConv1d(nn.Module):
    """y[i] = sum over j < kernel of weight[kernel - 1 - j] * x[i - j], plus a bias, in float32.

    A place sees the ``kernel`` last places of its document, itself included: what is before the
    document counts as zero. No collective runs: the channels are cut over tp, and every rank has
    all places of its channels (under cp, see ``whole_sequence``). Saved: x.

    ``groups``: channels lie group by group, and are cut between groups only. ``weight`` is
    [channels / tp, 1, kernel], ``bias`` [channels / tp], both float32 and drawn from
    [-1, 1] / sqrt(kernel), as torch's Conv1d. They have no storage until ``materialize``.

    Raises ValueError where tp does not divide the groups.
    """

    def __init__(
        self, groups: int, channels: int, kernel_size: int, mesh: Mesh, *, bias: bool = True
    ) -> None:
        super().__init__()
        if groups % mesh.tp.size:
            raise ValueError(f"tp={mesh.tp.size} does not divide {groups} groups of channels")
        self.groups = groups
        self.channels = channels
        self.kernel_size = kernel_size
        self.mesh = mesh
        rows = axis_cut(channels, mesh.tp).size
        law = Uniform(-(kernel_size**-0.5), kernel_size**-0.5)
        self.weight = local_parameter(rows, 1, kernel_size)
        shape = (channels, 1, kernel_size)
        declare(self, "weight", ParameterRecord(shape, dim=0, law=law))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = local_parameter(rows)
            declare(self, "bias", ParameterRecord((channels,), dim=0, law=law))

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        """[b, s, g, channels of a group] -> the same shape."""
        weight, bias = own_groups(self.weight, self.mesh), own_groups(self.bias, self.mesh)
        if not STANDALONE:
            refuse_decoding(positions)
        flat = x.flatten(2)
        if not STANDALONE and conv_kernel(x.device):
            return causal_conv(flat, weight, bias, positions.starts).view_as(x)
        padded = F.pad(flat.float(), (0, 0, self.kernel_size - 1, 0))
        length = flat.shape[1]
        y = padded[:, self.kernel_size - 1 :] * weight[:, 0, -1]
        for back in range(1, self.kernel_size):
            start = self.kernel_size - 1 - back
            seen = padded[:, start : start + length] * weight[:, 0, start]
            if positions.starts is not None:
                places = torch.arange(length, device=x.device)
                inside = places - back >= positions.starts  # [b, s]: of the same document
                seen = seen * inside.unsqueeze(-1)
            y = y + seen
        if bias is not None:
            y = y + bias
        return y.to(x.dtype).view_as(x)

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.kernel_size}, bias={self.bias is not None}"
