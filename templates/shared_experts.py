"""Experts that every token goes to."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime import Mesh, Normal, ParameterRecord, declare

from .config import ModelParallelConfig
from .mlp import MLP, MLPSubmodules


class SharedExpertMLP(MLP):
    """The experts that every token goes to, as one MLP.

    A gate, one number for each token, says how much it counts. [if config.moe_shared_expert_gate]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: MLPSubmodules
    ) -> None:
        super().__init__(
            config,
            mesh,
            ffn_hidden_size=config.moe_shared_expert_intermediate_size,
            submodules=submodules,
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
