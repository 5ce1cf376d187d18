"""A transformer layer."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specc.runtime import Dropout, Mesh, Positions

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module, norm_slot, required_slot


@dataclass
class TransformerLayerSubmodules:
    """The children of TransformerLayer."""

    input_layernorm: Node = norm_slot()
    self_attention: Node = required_slot()
    pre_mlp_layernorm: Node = norm_slot()
    mlp: Node = required_slot()


class TransformerLayer(MegatronModule):
    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: TransformerLayerSubmodules,
    ) -> None:
        super().__init__(config)
        self.input_layernorm = build_module(
            submodules.input_layernorm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.self_attention = build_module(
            submodules.self_attention, config, layer_number=layer_number
        )
        self.pre_mlp_layernorm = build_module(
            submodules.pre_mlp_layernorm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.mlp = build_module(submodules.mlp, config)
        if config.hidden_dropout > 0.0:
            self.self_attention_dropout = Dropout(config.hidden_dropout, mesh)
            self.mlp_dropout = Dropout(config.hidden_dropout, mesh)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary, attention_mask)
        if self.config.hidden_dropout > 0.0:
            y = self.self_attention_dropout(y, positions)
        x = x + y
        y = self.mlp(self.pre_mlp_layernorm(x))
        if self.config.hidden_dropout > 0.0:
            y = self.mlp_dropout(y, positions)
        return x + y
