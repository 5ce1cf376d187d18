"""Pythia 6.9B, 6,857,302,016 parameters: attention and MLP side by side.

Biderman et al., "Pythia: A Suite for Analyzing Large Language Models" (arXiv 2304.01373), table 1:
32 layers, model dim 4096, 32 heads, 6,444,163,072 parameters without the embeddings; section 2.2:
parallel attention and feedforward, rotary positions, untied. config.json of EleutherAI/pythia-6.9b:
intermediate_size 16384, vocab_size 50432, max_position_embeddings 2048, rotary_pct 0.25,
rotary_emb_base 10000, hidden_act gelu, layer_norm_eps 1e-05, use_parallel_residual true,
tie_word_embeddings false, initializer_range 0.02. Biases everywhere but in the output layer.

No template has its two halves side by side: the class below does.
"""

from dataclasses import dataclass

from published_parts import decoder
from torch import Tensor

from specc.runtime import Positions
from specc.templates import (
    MLP,
    LayerNorm,
    MegatronModule,
    ModuleSpec,
    SelfAttention,
    TransformerConfig,
    build_module,
    norm_slot,
    required_slot,
)
from specc.templates.spec import Node


@dataclass
class ParallelLayerSubmodules:
    input_layernorm: Node = norm_slot()
    self_attention: Node = required_slot()
    pre_mlp_layernorm: Node = norm_slot()
    mlp: Node = required_slot()


class ParallelLayer(MegatronModule):
    """Attention and MLP read the same x, each through a norm of its own."""

    def __init__(
        self, config: TransformerConfig, layer_number: int, submodules: ParallelLayerSubmodules
    ) -> None:
        super().__init__(config)
        self.input_layernorm = build_module(submodules.input_layernorm, config)
        self.self_attention = build_module(
            submodules.self_attention, config, layer_number=layer_number
        )
        self.pre_mlp_layernorm = build_module(submodules.pre_mlp_layernorm, config)
        self.mlp = build_module(submodules.mlp, config)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary, attention_mask)
        return x + y + self.mlp(self.pre_mlp_layernorm(x))


config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    ffn_hidden_size=16384,
    vocab_size=50432,
    max_position_embeddings=2048,
    position_embedding_type="rope",
    rotary_base=10000.0,
    rotary_percent=0.25,
    activation="gelu",
    layernorm_epsilon=1e-5,
    add_bias_linear=True,
)

norm = ModuleSpec(LayerNorm)

pythia_69b = decoder(
    config,
    norm=LayerNorm,
    layer=ModuleSpec(
        ParallelLayer,
        submodules={
            "input_layernorm": norm,
            "self_attention": ModuleSpec(SelfAttention),
            "pre_mlp_layernorm": norm,
            "mlp": ModuleSpec(MLP),
        },
    ),
)
