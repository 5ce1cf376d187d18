"""Linear layers of experts: whole experts dealt out over ep, each cut over etp."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .grouped import group_of_rows, grouped_linear
from .linear import local_parameter
from .mesh import Mesh
from .parameters import Constant, Normal, ParameterRecord, declare


class GroupedColumnParallelLinear(nn.Module):
    """Each expert's y = x W^T, plus a bias where there is one: float32 weights, cast to x's dtype.

    Rows of x come in groups, one for each of this rank's experts (``grouped_linear``). The experts
    are dealt out over ep; the rows of each W (the output features) are cut over etp.

    =========  =====================================================
    x          [R, in], the same on all ranks of etp
    y          [R, out / etp]
    forward    no collective
    backward   none: x's gradient is partial (``dispatch`` sums it)
    saved      x
    =========  =====================================================

    Beside x the weight is saved: no copy under FSDP or in float32, else (eager) its cast.
    ``weight`` is [E / ep, out / etp, in], ``bias`` [E / ep, out / etp].

    Raises ValueError where ep does not divide the experts or etp the output features.
    """

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        out_features: int,
        mesh: Mesh,
        *,
        bias: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        experts = _own_experts(num_experts, mesh)
        rows = _own_features(out_features, "output", mesh)
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.weight = local_parameter(experts, rows, in_features)
        shape = (num_experts, out_features, in_features)
        law = Normal(init_std)
        declare(self, "weight", ParameterRecord(shape, dim=1, law=law, expert_dim=0))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = local_parameter(experts, rows)
            zeros = Constant(0.0)
            declare(self, "bias", ParameterRecord(shape[:2], dim=1, law=zeros, expert_dim=0))

    def forward(self, x: Tensor, tokens_per_expert: Tensor) -> Tensor:
        """[R, in] -> [R, out / etp]; ``tokens_per_expert`` [E / ep] says how many rows each has."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return grouped_linear(x, self.weight.to(x.dtype), tokens_per_expert, bias)

    def extra_repr(self) -> str:
        return _described(self)


class GroupedRowParallelLinear(nn.Module):
    """Each expert's y = x W^T, plus a bias where there is one: float32 weights, cast to x's dtype.

    Rows of x come in groups, one for each of this rank's experts (``grouped_linear``). The experts
    are dealt out over ep; the columns of each W (the input features) are cut over etp.

    =========  =======================================================================
    x          [R, in / etp]
    y          [R, out], at etp above 1 a part of it, which ``combine`` sums over etp
    forward    no collective
    backward   none
    saved      x
    =========  =======================================================================

    ``weight`` is [E / ep, out, in / etp]; ``bias`` [E / ep, out] is whole on every rank of etp, and
    each adds its share.

    Raises ValueError where ep does not divide the experts or etp the input features.
    """

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        out_features: int,
        mesh: Mesh,
        *,
        bias: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        experts = _own_experts(num_experts, mesh)
        columns = _own_features(in_features, "input", mesh)
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.mesh = mesh
        self.weight = local_parameter(experts, out_features, columns)
        shape = (num_experts, out_features, in_features)
        law = Normal(init_std)
        declare(self, "weight", ParameterRecord(shape, dim=2, law=law, expert_dim=0))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = local_parameter(experts, out_features)
            zeros = Constant(0.0)
            declare(self, "bias", ParameterRecord(shape[:2], law=zeros, expert_dim=0))

    def forward(
        self, x: Tensor, tokens_per_expert: Tensor, bias_scale: Tensor | None = None
    ) -> Tensor:
        """[R, in / etp] -> [R, out]; ``bias_scale`` [R] multiplies the bias of each row."""
        y = grouped_linear(x, self.weight.to(x.dtype), tokens_per_expert)
        if self.bias is None:
            return y
        group = group_of_rows(tokens_per_expert.cumsum(0), x.shape[0])
        bias = F.pad(self.bias, (0, 0, 0, 1))[group]  # [R, out], zeros for rows of no expert
        if self.mesh.etp.size > 1:
            bias = bias / self.mesh.etp.size
        if bias_scale is not None:
            bias = bias * bias_scale[:, None]
        return y + bias.to(y.dtype)

    def extra_repr(self) -> str:
        return _described(self)


def _own_experts(experts: int, mesh: Mesh) -> int:
    if experts % mesh.ep.size:
        raise ValueError(f"ep={mesh.ep.size} does not divide {experts} experts")
    return experts // mesh.ep.size


def _own_features(features: int, which: str, mesh: Mesh) -> int:
    if features % mesh.etp.size:
        raise ValueError(
            f"etp={mesh.etp.size} does not divide the {features} {which} features of an expert"
        )
    return features // mesh.etp.size


def _described(layer: GroupedColumnParallelLinear | GroupedRowParallelLinear) -> str:
    return (
        f"{layer.num_experts} x {layer.in_features}, {layer.out_features}, "
        f"bias={layer.bias is not None}"
    )
