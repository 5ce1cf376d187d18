"""Prediction of tokens beyond the next one."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Linear,
    Mesh,
    MultiTokenLoss,
    Positions,
    linear_cross_entropy,
    next_labels,
    rotary_tables,
)

from .base import MegatronModule
from .config import ModelParallelConfig
from .identity import IdentityOp
from .spec import Node, build_module, norm_slot, required_slot


@dataclass
class MultiTokenPredictionLayerSubmodules:
    """The children of MultiTokenPredictionLayer.

    A class in the place of `eh_proj` takes what the runtime's Linear takes.
    """

    enorm: Node = norm_slot()
    hnorm: Node = norm_slot()
    eh_proj: Node = Linear
    transformer_layer: Node = required_slot()
    layer_norm: Node = field(
        default=IdentityOp, metadata={"unnamed": "norm", "alias": "final_layernorm"}
    )


class MultiTokenPredictionLayer(MegatronModule):
    """Goes one token further: from what was known of a token to what is known with the next one."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: MultiTokenPredictionLayerSubmodules,
    ) -> None:
        super().__init__(config)
        self.enorm = build_module(
            submodules.enorm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.hnorm = build_module(
            submodules.hnorm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
        self.eh_proj = build_module(
            submodules.eh_proj,
            2 * config.hidden_size,
            config.hidden_size,
            init_std=config.init_method_std,
        )
        self.transformer_layer = build_module(
            submodules.transformer_layer, config, layer_number=layer_number
        )
        self.final_layernorm = build_module(
            submodules.layer_norm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )

    def forward(
        self,
        x: Tensor,
        embedded: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """x and the embedding of each place's next token, both [b, t, h], to [b, t, h]."""
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(x)), dim=-1))
        return self.final_layernorm(self.transformer_layer(x, positions, rotary))


class MultiTokenPredictionBlock(MegatronModule):
    """Predicts tokens beyond the next one (arXiv 2412.19437), in training alone.

    Each layer goes one token further than the one before it. The output layer is the model's own.
    """

    def __init__(self, config: ModelParallelConfig, mesh: Mesh, layer_spec: Node) -> None:
        super().__init__(config)
        self.mesh = mesh
        assert config.mtp_num_layers is not None
        depths = config.mtp_num_layers
        # A layer here is as the last of the decoder.
        self.layers = nn.ModuleList(
            [
                build_module(layer_spec, config, layer_number=config.num_layers)
                for _ in range(depths)
            ]
        )
        self.loss = MultiTokenLoss(config.mtp_loss_scaling_factor / depths, mesh)

    def forward(
        self,
        loss: Tensor,
        x: Tensor,
        ahead: Sequence[Tensor],
        labels: Tensor,
        positions: Positions,
        output_layer: ColumnParallelLinear,
    ) -> Tensor:
        """The next token's loss [b, s], to which those of the tokens after it are attached.

        ``ahead``: the embeddings [b, t, h] of each place's next token, of the one after that, ...
        """
        if self.config.position_embedding_type == "rope":
            rotary = rotary_tables(
                positions,
                self.config.rotary_dim,
                self.config.rotary_base,
                interleaved=self.config.rotary_interleaved,
                scaling=self.config.rotary_scaling,
            )
        else:
            rotary = None
        further, target = torch.zeros_like(loss), labels
        for depth, layer in enumerate(self.layers):
            x = layer(x, ahead[depth], positions, rotary)
            target = next_labels(target, positions, self.mesh)
            further = further + linear_cross_entropy(x, output_layer, target, self.mesh)
        return self.loss(loss, further, labels)
