"""Gemma 2 9B, 9,241,705,984 parameters, all but one step of it.

Gemma team, "Gemma 2: Improving Open Language Models at a Practical Size" (arXiv 2408.00118), table
1: d_model 3584, 42 layers, pre-norm and post-norm, GeGLU, feedforward dim 28672 (gate and up
together), 16 heads over 8 key/value heads of 256, windows of 4096 in every other layer, vocabulary
256128, tied; table 2: 8,324,201,984 parameters without the embedding; section 2: soft caps of 50 in
attention and 30 at the output, a context of 8192. config.json of google/gemma-2-9b: vocab_size
256000, query_pre_attn_scalar 256, rope_theta 10000.0, rms_norm_eps 1e-06, hidden_activation
gelu_pytorch_tanh, the first layer with a window; modeling_gemma2.py of transformers: norms' weights
count from one, the embedding is multiplied by sqrt(3584).

The templates have no slot for a norm after each half, and none for the embedding's factor: the two
classes below stand for them. They cannot express the soft cap of the output's logits
(final_logit_softcapping 30.0), which is left out.
"""

from dataclasses import dataclass

from published_parts import decoder
from torch import Tensor

from specc.runtime import Positions
from specc.templates import (
    MLP,
    LanguageModelEmbedding,
    MegatronModule,
    ModuleSpec,
    RMSNorm,
    SelfAttention,
    TransformerConfig,
    build_module,
    norm_slot,
    required_slot,
)
from specc.templates.spec import Node


class ScaledEmbedding(LanguageModelEmbedding):
    """The embedding times the root of its width."""

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        return super().forward(input_ids, position_ids, positions) * self.config.hidden_size**0.5


@dataclass
class SandwichLayerSubmodules:
    input_layernorm: Node = norm_slot()
    self_attention: Node = required_slot()
    post_attention_layernorm: Node = norm_slot()
    pre_mlp_layernorm: Node = norm_slot()
    mlp: Node = required_slot()
    post_mlp_layernorm: Node = norm_slot()


class SandwichLayer(MegatronModule):
    """Norms before and after attention and MLP."""

    def __init__(
        self, config: TransformerConfig, layer_number: int, submodules: SandwichLayerSubmodules
    ) -> None:
        super().__init__(config)
        self.input_layernorm = build_module(submodules.input_layernorm, config)
        self.self_attention = build_module(
            submodules.self_attention, config, layer_number=layer_number
        )
        self.post_attention_layernorm = build_module(submodules.post_attention_layernorm, config)
        self.pre_mlp_layernorm = build_module(submodules.pre_mlp_layernorm, config)
        self.mlp = build_module(submodules.mlp, config)
        self.post_mlp_layernorm = build_module(submodules.post_mlp_layernorm, config)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary, attention_mask)
        x = x + self.post_attention_layernorm(y)
        return x + self.post_mlp_layernorm(self.mlp(self.pre_mlp_layernorm(x)))


config = TransformerConfig(
    num_layers=42,
    hidden_size=3584,
    num_attention_heads=16,
    num_query_groups=8,
    kv_channels=256,
    ffn_hidden_size=14336,
    vocab_size=256000,
    max_position_embeddings=8192,
    position_embedding_type="rope",
    rotary_base=10000.0,
    activation="geglu_tanh",
    layernorm_epsilon=1e-6,
    layernorm_zero_centered_gamma=True,
    attn_logit_softcapping=50.0,
    softmax_scale=256**-0.5,
    window_size=4096,
    window_attn_skip_freq=2,
    untie_embeddings_and_output_weights=False,
)

norm = ModuleSpec(RMSNorm)

gemma2_9b = decoder(
    config,
    embedding=ScaledEmbedding,
    layer=ModuleSpec(
        SandwichLayer,
        submodules={
            "input_layernorm": norm,
            "self_attention": ModuleSpec(SelfAttention),
            "post_attention_layernorm": norm,
            "pre_mlp_layernorm": norm,
            "mlp": ModuleSpec(MLP),
            "post_mlp_layernorm": norm,
        },
    ),
)
