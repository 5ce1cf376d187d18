"""Experts that every token goes to."""

from __future__ import annotations

import torch
from torch import nn

from specc.runtime import Mesh, Normal, ParameterRecord, declare

from .config import ModelParallelConfig
from .mlp import FeedForward, MLPSubmodules
from .spec import build_module


class SharedExpertMLP(FeedForward):
    """The experts that every token goes to, as one MLP.

    `gate_weight` gates it: MoELayer reads it. [if config.moe_shared_expert_gate]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: MLPSubmodules
    ) -> None:
        super().__init__(config)
        self.linear_fc1 = build_module(
            submodules.linear_fc1,
            config.hidden_size,
            2 * config.shared_ffn_size if config.gated_linear_unit else config.shared_ffn_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std,
        )
        self.linear_fc2 = build_module(
            submodules.linear_fc2,
            config.shared_ffn_size,
            config.hidden_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std
            / (config.num_layers if config.hybrid_layer_pattern else 2 * config.num_layers) ** 0.5,
        )
        if config.moe_shared_expert_gate:
            self.gate_weight = nn.Parameter(torch.empty(1, config.hidden_size))
            declare(
                self,
                "gate_weight",
                ParameterRecord((1, config.hidden_size), law=Normal(config.init_method_std)),
            )
