"""Mamba-2's mixer."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specc.runtime import (
    CausalConv1d,
    ColumnParallelLinear,
    Constant,
    GatedRMSNorm,
    Mesh,
    Positions,
    RowParallelLinear,
    Uniform,
    head_parameter,
    own_places,
    ssd,
    whole_sequence,
)

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class MambaMixerSubmodules:
    """The projections of MambaMixer: a class in their place takes what ColumnParallelLinear and
    RowParallelLinear take."""

    in_proj: Node = ColumnParallelLinear
    out_proj: Node = RowParallelLinear


class MambaMixer(MegatronModule):
    """Mamba-2 (arXiv 2405.21060): each head's state decays and is added to, as the token says."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        d_conv: int = 4,
        chunk_size: int = 128,
        conv_bias: bool = True,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        A_init_range: tuple[float, float] = (1.0, 16.0),
        *,
        submodules: MambaMixerSubmodules,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        self.chunk_size = chunk_size
        groups, heads = config.mamba_num_groups, config.mamba_heads
        self.group_size = heads // groups  # heads that share B and C
        width, state = self.group_size * config.mamba_head_dim, config.mamba_state_dim
        channels = width + 2 * state
        # Rows go group by group, [gate | x | B | C | step of each head]: any tp cuts between them.
        self.parts = (width, channels, self.group_size)
        self.in_proj = build_module(
            submodules.in_proj,
            config.hidden_size,
            groups * sum(self.parts),
            mesh,
            bias=config.add_bias_linear,
            unit=sum(self.parts),
            init_std=config.init_method_std,
        )
        self.conv1d = CausalConv1d(groups, groups * channels, d_conv, mesh, bias=conv_bias)
        # Steps from dt_min to dt_max, even in their logarithm.
        steps = Uniform(math.log(dt_min), math.log(dt_max), then="step_size")
        self.dt_bias = head_parameter(self, "dt_bias", heads, mesh, steps)
        self.A_log = head_parameter(self, "A_log", heads, mesh, Uniform(*A_init_range, then="log"))
        self.D = head_parameter(self, "D", heads, mesh, Constant(1.0))
        self.norm = GatedRMSNorm(groups * width, groups, mesh, config.layernorm_epsilon)
        self.out_proj = build_module(
            submodules.out_proj,
            groups * width,
            config.hidden_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std / config.num_layers**0.5,
        )

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        rows = self.in_proj(x)  # gathers the positions over tp: [b, s, g * ..]
        gate, xbc, dt = rows.unflatten(-1, (-1, sum(self.parts))).split(self.parts, dim=-1)
        dt = F.softplus(dt.float() + self.dt_bias.view(-1, self.group_size))  # [b, s, g, m]
        # All places of some groups for some places of all, over cp.
        xbc = whole_sequence(xbc, self.mesh)
        dt = whole_sequence(dt, self.mesh)
        xbc = F.silu(self.conv1d(xbc, positions))
        state = self.config.mamba_state_dim
        x, b, c = torch.split(xbc, [self.parts[0], state, state], dim=-1)
        x = torch.unflatten(x, -1, (self.group_size, -1))  # [b, s, g, m, d]
        a = -self.A_log.exp()
        # h = exp(dt a) h + dt x b^T, y = h c + D x, from place to place.
        y = ssd(x, dt, a, b, c, self.D, positions, self.mesh, chunk_size=self.chunk_size)
        y = self.norm(own_places(y, self.mesh).flatten(2), gate.flatten(2))
        return self.out_proj(y)  # sums over tp, keeps this rank's positions: [b, t, h]
