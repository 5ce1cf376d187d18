"""The gated delta net's mixer."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specc.runtime import (
    CausalConv1d,
    ColumnParallelLinear,
    Constant,
    Mesh,
    Positions,
    RMSNorm,
    RowParallelLinear,
    Uniform,
    gated_delta_rule,
    head_parameter,
    own_places,
    whole_sequence,
)

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class GatedDeltaNetSubmodules:
    """The children of GatedDeltaNet.

    A class in the place of a projection takes what ColumnParallelLinear and RowParallelLinear take,
    one in the place of `out_norm` what the runtime's RMSNorm takes.
    """

    in_proj: Node = ColumnParallelLinear
    out_norm: Node = RMSNorm
    out_proj: Node = RowParallelLinear


class GatedDeltaNet(MegatronModule):
    """Gated delta net (arXiv 2412.06464): a head's state maps keys to values.

    It decays, and each place corrects what its key maps to. A query and key head serves a group of
    value heads.
    """

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        *,
        submodules: GatedDeltaNetSubmodules,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        groups = config.linear_num_key_heads
        self.group_size = config.linear_num_value_heads // groups  # value heads of a key head
        key, value = config.linear_key_head_dim, config.linear_value_head_dim
        channels = 2 * key + self.group_size * value
        # Rows go group by group, [query | key | values | gates | beta and decay of each value
        # head]; any tp cuts between groups.
        self.parts = (channels, self.group_size * value, self.group_size, self.group_size)
        self.in_proj = build_module(
            submodules.in_proj,
            config.hidden_size,
            groups * sum(self.parts),
            mesh,
            unit=sum(self.parts),
            init_std=config.init_method_std,
        )
        self.conv1d = CausalConv1d(
            groups, groups * channels, config.linear_conv_kernel_dim, mesh, bias=False
        )
        heads = config.linear_num_value_heads
        self.dt_bias = head_parameter(self, "dt_bias", heads, mesh, Constant(1.0))
        self.A_log = head_parameter(self, "A_log", heads, mesh, Uniform(0.0, 16.0, then="log"))
        # One norm over the channels of a head, the same for all heads.
        self.out_norm = build_module(submodules.out_norm, value, eps=config.layernorm_epsilon)
        self.out_proj = build_module(
            submodules.out_proj,
            heads * value,
            config.hidden_size,
            mesh,
            init_std=config.init_method_std / config.num_layers**0.5,
        )

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        rows = self.in_proj(x)  # gathers the positions over tp: [b, s, g * ..]
        qkv, gate, beta, a = rows.unflatten(-1, (-1, sum(self.parts))).split(self.parts, dim=-1)
        beta = beta.float().sigmoid()
        step = F.softplus(a.float() + self.dt_bias.view(-1, self.group_size))
        decay = -self.A_log.exp().view(-1, self.group_size) * step  # its logarithm: [b, s, g, m]
        # All places of some groups for some places of all, over cp.
        qkv = whole_sequence(qkv, self.mesh)
        beta = whole_sequence(beta, self.mesh)
        decay = whole_sequence(decay, self.mesh)
        qkv = F.silu(self.conv1d(qkv, positions))
        key, value = self.config.linear_key_head_dim, self.config.linear_value_head_dim
        q, k, v = torch.split(qkv, [key, key, self.group_size * value], dim=-1)  # [b, s, g, ..]
        v = torch.unflatten(v, -1, (self.group_size, -1))  # [b, s, g, m, value]
        # S = exp(decay) S; S += k (beta (v - S^T k))^T; y = S^T q, from place to place.
        y = own_places(gated_delta_rule(q, k, v, decay, beta, positions), self.mesh)
        y = self.out_norm(y) * F.silu(gate.float()).view_as(y).to(y.dtype)
        return self.out_proj(y.flatten(2))  # sums over tp, keeps this rank's positions: [b, t, h]
