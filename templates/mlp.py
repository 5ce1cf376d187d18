"""The feed-forward half of a layer."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return, operator"

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from specc.runtime import ColumnParallelLinear, Mesh, RowParallelLinear

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class MLPSubmodules:
    """The projections; a class in their place takes what ColumnParallelLinear and
    RowParallelLinear take."""

    linear_fc1: Node = ColumnParallelLinear
    linear_fc2: Node = RowParallelLinear


class FeedForward(MegatronModule):
    """What MLPs of any width have in common."""

    def forward(self, x: Tensor) -> Tensor:
        if self.config.gated_linear_unit:
            gate, up = self.linear_fc1(x).unflatten(-1, (-1, 2)).unbind(-1)
            if self.config.activation == "swiglu":
                return self.linear_fc2(F.silu(gate) * up)
            if self.config.activation == "geglu":
                return self.linear_fc2(F.gelu(gate) * up)
            if self.config.activation == "quick_geglu":
                if self.config.activation_func_clamp_value is not None:
                    limit = self.config.activation_func_clamp_value
                    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
                if self.config.glu_linear_offset > 0.0:
                    up = up + self.config.glu_linear_offset
                return self.linear_fc2(gate * (1.702 * gate).sigmoid() * up)
            return self.linear_fc2(F.gelu(gate, approximate="tanh") * up)
        if self.config.activation == "gelu":
            return self.linear_fc2(F.gelu(self.linear_fc1(x)))
        if self.config.activation == "gelu_tanh":
            return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))
        return self.linear_fc2(F.relu(self.linear_fc1(x)).square())


class MLP(FeedForward):
    """The feed-forward half of a layer.

    SwiGLU: the first projection's rows alternate gate, up. [if config.activation == "swiglu"]
    GEGLU: the first projection's rows alternate gate, up. [if config.activation == "geglu"]
    GEGLU by tanh: rows of the first alternate gate, up. [if config.activation == "geglu_tanh"]
    GEGLU by a sigmoid: the first's rows alternate gate, up. [if config.activation == "quick_geglu"]
    A GELU between two projections. [if config.activation == "gelu"]
    A GELU, by its tanh formula, between two projections. [if config.activation == "gelu_tanh"]
    A squared ReLU between two projections. [if config.activation == "squared_relu"]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: MLPSubmodules
    ) -> None:
        super().__init__(config)
        self.linear_fc1 = build_module(
            submodules.linear_fc1,
            config.hidden_size,
            2 * config.ffn_size if config.gated_linear_unit else config.ffn_size,
            mesh,
            bias=config.has_mlp_bias,
            init_std=config.init_method_std,
        )
        self.linear_fc2 = build_module(
            submodules.linear_fc2,
            config.ffn_size,
            config.hidden_size,
            mesh,
            bias=config.has_mlp_bias,
            init_std=config.init_method_std
            / (config.num_layers if config.hybrid_layer_pattern else 2 * config.num_layers) ** 0.5,
        )
