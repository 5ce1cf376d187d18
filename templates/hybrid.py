"""Hybrid stacks: layers of several kinds, in the order that a pattern says."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from specc.runtime import Mesh

from .block import LayerStack
from .config import ModelParallelConfig
from .gpt import GPTModel
from .identity import IdentityOp
from .spec import Node, build_module


@dataclass
class HybridStackSubmodules:
    """The children of HybridStack: a layer for each kind that the pattern names, and the norm.

    `MambaStackSubmodules` in Megatron-Core 0.16. What the pattern does not name is not built.
    """

    mamba_layer: Node = None
    gdn_layer: Node = None
    attention_layer: Node = None
    mla_layer: Node = None
    mlp_layer: Node = None
    moe_layer: Node = None
    final_norm: Node = field(
        default=IdentityOp, metadata={"unnamed": "norm", "alias": "final_layernorm"}
    )


class HybridStack(LayerStack):
    """A stack of layers of several kinds; the pattern has a symbol for each."""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        *,
        submodules: HybridStackSubmodules,
    ) -> None:
        super().__init__(config)
        assert config.hybrid_layer_pattern is not None
        self.mesh = mesh
        kinds = {
            "M": submodules.mamba_layer,
            "G": submodules.gdn_layer,
            "*": submodules.attention_layer,
            "+": submodules.mla_layer,
            "-": submodules.mlp_layer,
            "E": submodules.moe_layer,
        }
        self.layers = nn.ModuleList(
            [
                build_module(kinds[symbol], config, layer_number=i + 1)
                for i, symbol in enumerate(config.hybrid_layer_pattern)
            ]
        )
        self.final_layernorm = build_module(
            submodules.final_norm,
            config,
            hidden_size=config.hidden_size,
            eps=config.layernorm_epsilon,
        )


class HybridModel(GPTModel):
    """A decoder-only language model over a hybrid stack."""
