"""Experts: many MLPs of one shape, whose products are one operation."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specc.runtime import GroupedColumnParallelLinear, GroupedRowParallelLinear, Mesh

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class GroupedMLPSubmodules:
    """The projections; a class in their place takes what GroupedColumnParallelLinear and
    GroupedRowParallelLinear take."""

    linear_fc1: Node = GroupedColumnParallelLinear
    linear_fc2: Node = GroupedRowParallelLinear


class GroupedMLP(MegatronModule):
    """The experts of a layer, each an MLP of its own on the rows of its tokens.

    SwiGLU: the first projection's rows alternate gate, up. [if config.activation == "swiglu"]
    GEGLU: the first projection's rows alternate gate, up. [if config.activation == "geglu"]
    GEGLU by tanh: rows of the first alternate gate, up. [if config.activation == "geglu_tanh"]
    GEGLU by a sigmoid: the first's rows alternate gate, up. [if config.activation == "quick_geglu"]
    A GELU between two projections. [if config.activation == "gelu"]
    A GELU, by its tanh formula, between two projections. [if config.activation == "gelu_tanh"]
    A squared ReLU between two projections. [if config.activation == "squared_relu"]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: GroupedMLPSubmodules
    ) -> None:
        super().__init__(config)
        self.linear_fc1 = build_module(
            submodules.linear_fc1,
            config.num_moe_experts,
            config.hidden_size,
            2 * config.moe_ffn_size if config.gated_linear_unit else config.moe_ffn_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std,
        )
        self.linear_fc2 = build_module(
            submodules.linear_fc2,
            config.num_moe_experts,
            config.moe_ffn_size,
            config.hidden_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std
            / (config.num_layers if config.hybrid_layer_pattern else 2 * config.num_layers) ** 0.5,
        )

    def forward(self, x: Tensor, probs: Tensor, tokens_per_expert: Tensor) -> Tensor:
        """Rows [r, h] in the order of their experts, and as many probabilities: to [r, h]."""
        if self.config.moe_apply_probs_on_input:
            x, probs = (x * probs[:, None]).to(x.dtype), torch.ones_like(probs)
        if self.config.gated_linear_unit:
            gate, up = self.linear_fc1(x, tokens_per_expert).unflatten(-1, (-1, 2)).unbind(-1)
            if self.config.activation == "swiglu":
                y = F.silu(gate) * up
            elif self.config.activation == "geglu":
                y = F.gelu(gate) * up
            elif self.config.activation == "quick_geglu":
                if self.config.activation_func_clamp_value is not None:
                    limit = self.config.activation_func_clamp_value
                    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
                if self.config.glu_linear_offset > 0.0:
                    up = up + self.config.glu_linear_offset
                y = gate * (1.702 * gate).sigmoid() * up
            else:
                y = F.gelu(gate, approximate="tanh") * up
        else:
            y = self.linear_fc1(x, tokens_per_expert)
            if self.config.activation == "gelu":
                y = F.gelu(y)
            elif self.config.activation == "gelu_tanh":
                y = F.gelu(y, approximate="tanh")
            else:
                y = F.relu(y).square()
        # A row counts as much as its token's probability says.
        y = (y * probs[:, None]).to(x.dtype)
        if self.config.add_bias_linear:
            return self.linear_fc2(y, tokens_per_expert, bias_scale=probs)
        return self.linear_fc2(y, tokens_per_expert)
