"""Layers of a hybrid stack: each one norm, one part, and what it adds to the hidden."""

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
class MambaLayerSubmodules:
    """The children of a layer around a mixer."""

    norm: Node = norm_slot()
    mixer: Node = required_slot()


class MixerLayer(MegatronModule):
    """What layers around a mixer have in common."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        *,
        submodules: MambaLayerSubmodules,
    ) -> None:
        super().__init__(config)
        self.norm = build_module(
            submodules.norm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.mixer = build_module(submodules.mixer, config)
        if config.hidden_dropout > 0.0:
            self.dropout = Dropout(config.hidden_dropout, mesh)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.mixer(self.norm(x), positions)
        if self.config.hidden_dropout > 0.0:
            y = self.dropout(y, positions)
        if self.config.residual_multiplier is not None:
            y = y * self.config.residual_multiplier
        return x + y


class MambaLayer(MixerLayer):
    """A layer of a hybrid stack: a state space."""


class GatedDeltaNetLayer(MixerLayer):
    """A layer of a hybrid stack: linear attention."""


@dataclass
class AttentionLayerSubmodules:
    """The children of AttentionLayer."""

    input_layernorm: Node = norm_slot()
    self_attention: Node = required_slot()


class AttentionLayer(MegatronModule):
    """A layer of a hybrid stack: the first half of a transformer layer."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: AttentionLayerSubmodules,
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
        if config.hidden_dropout > 0.0:
            self.dropout = Dropout(config.hidden_dropout, mesh)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary, attention_mask)
        if self.config.hidden_dropout > 0.0:
            y = self.dropout(y, positions)
        if self.config.residual_multiplier is not None:
            y = y * self.config.residual_multiplier
        return x + y


@dataclass
class MLPLayerSubmodules:
    """The children of MLPLayer; experts may stand in the place of the MLP."""

    pre_mlp_layernorm: Node = norm_slot()
    mlp: Node = required_slot()


class MLPLayer(MegatronModule):
    """A layer of a hybrid stack: the second half of a transformer layer."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        *,
        submodules: MLPLayerSubmodules,
    ) -> None:
        super().__init__(config)
        self.pre_mlp_layernorm = build_module(
            submodules.pre_mlp_layernorm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.mlp = build_module(submodules.mlp, config)
        if config.hidden_dropout > 0.0:
            self.dropout = Dropout(config.hidden_dropout, mesh)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.mlp(self.pre_mlp_layernorm(x))
        if self.config.hidden_dropout > 0.0:
            y = self.dropout(y, positions)
        if self.config.residual_multiplier is not None:
            y = y * self.config.residual_multiplier
        return x + y
