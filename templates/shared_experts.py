"""Experts that every token goes to."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime import Mesh, Normal, ParameterRecord, declare

from .base import MegatronModule
from .config import ModelParallelConfig
from .mlp import MLP, MLPSubmodules
from .spec import build_module


class SharedExpertMLP(MLP):
    """The experts that every token goes to, as one MLP.

    A gate, one number for each token, says how much it counts. [if config.moe_shared_expert_gate]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: MLPSubmodules
    ) -> None:
        MegatronModule.__init__(self, config)  # not MLP's, whose width is another
        self.linear_fc1 = build_module(
            submodules.linear_fc1,
            config.hidden_size,
            (
                2 * config.moe_shared_expert_intermediate_size
                if config.gated_linear_unit
                else config.moe_shared_expert_intermediate_size
            ),
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std,
        )
        self.linear_fc2 = build_module(
            submodules.linear_fc2,
            config.moe_shared_expert_intermediate_size,
            config.hidden_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std / (2 * config.num_layers) ** 0.5,
        )
        if config.moe_shared_expert_gate:
            self.gate_weight = nn.Parameter(torch.empty(1, config.hidden_size))
            declare(
                self,
                "gate_weight",
                ParameterRecord((1, config.hidden_size), law=Normal(config.init_method_std)),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.config.moe_shared_expert_gate:
            gate = F.linear(x, self.gate_weight.to(x.dtype))  # [b, t, 1]
            y = y * gate.float().sigmoid().to(y.dtype)
        return y
