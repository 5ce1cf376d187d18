"""The stack of layers."""

# A module's call returns Any; the forwards say what it is. Stacks make what theirs runs.
# mypy: disable-error-code="no-any-return, operator, arg-type, union-attr"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from specc.runtime import Mesh, Positions, rotary_tables

from .base import MegatronModule
from .config import ModelParallelConfig
from .identity import IdentityOp
from .spec import Node, build_module


@dataclass
class TransformerBlockSubmodules:
    """The children of TransformerBlock, as Megatron-Core names them.

    `layer_specs` has one spec for each layer. (So has a `layer_spec` in params with a
    `moe_layer_spec` beside it, of the layers that `config.moe_layer_freq` gives experts: they are
    dealt out before anything is built.) A dict may call `layer_norm` by the name that the
    module has in the block, `final_layernorm`; one that leaves it out gets the config's norm.
    """

    layer_specs: Sequence[Node] | None = None
    layer_norm: Node = field(
        default=IdentityOp, metadata={"unnamed": "norm", "alias": "final_layernorm"}
    )


class LayerStack(MegatronModule):
    """What stacks of layers have in common."""

    def forward(
        self,
        x: Tensor,
        positions: Positions | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        if positions is None:
            positions = Positions.of_hidden(x, self.mesh)
        if rotary is None and self.config.position_embedding_type == "rope":
            rotary = rotary_tables(
                positions,
                self.config.rotary_dim,
                self.config.rotary_base,
                interleaved=self.config.rotary_interleaved,
                scaling=self.config.rotary_scaling,
            )
            if self.config.rotary_base_local is not None:
                # Layers with a window turn by another base, and never scaled.
                local = rotary_tables(
                    positions,
                    self.config.rotary_dim,
                    self.config.rotary_base_local,
                    interleaved=self.config.rotary_interleaved,
                )
                rotary = torch.stack((rotary[0], local[0])), torch.stack((rotary[1], local[1]))
        for layer in self.layers:
            x = layer(x, positions, rotary, attention_mask)
        if not self.mesh.last_stage:
            return x
        return self.final_layernorm(x)


class TransformerBlock(LayerStack):
    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_spec: Node = None,
        layer_specs: Sequence[Node] | None = None,
        num_layers: int | None = None,
        moe_layer_spec: Node = None,
        *,
        submodules: TransformerBlockSubmodules,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        if layer_specs is None:
            if num_layers is None:
                num_layers = config.num_layers
            self.layers = nn.ModuleList(
                [build_module(layer_spec, config, layer_number=i + 1) for i in range(num_layers)]
            )
        else:
            self.layers = nn.ModuleList(
                [
                    build_module(spec, config, layer_number=i + 1)
                    for i, spec in enumerate(layer_specs)
                ]
            )
        self.final_layernorm = build_module(
            submodules.layer_norm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )
