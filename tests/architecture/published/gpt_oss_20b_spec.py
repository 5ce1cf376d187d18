"""gpt-oss-20b's attention, with a dense MLP in place of its experts.

OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (arXiv 2508.10925), section 2: 24 layers, residual
stream 2880, 64 query heads of 64 over 8 key/value heads, layers with a window of 128 and layers
that see everything in turn, a learned bias in the denominator of the softmax, YaRN to 131,072
places, 32 experts of which 4 work on a token. config.json of openai/gpt-oss-20b: hidden_size 2880,
head_dim 64, sliding_window 128 (layer_types begins with sliding_attention), attention_bias true (q,
k, v and the output projection), rope_theta 150000, rope_scaling yarn with factor 32.0, beta_fast
32.0, beta_slow 1.0, truncate false, original_max_position_embeddings 4096; rms_norm_eps 1e-05,
vocab_size 201088, intermediate_size 2880, initializer_range 0.02, tie_word_embeddings false.

The templates have no experts yet: a dense SwiGLU stands for them, 4 * 2880 wide as the four that
work on a token, without their biases, their clamp and the router. So attention, its cache and the
tables are gpt-oss's, and the parameters are not.
"""

from published_parts import decoder

from specc.runtime import Mesh, RowParallelLinear
from specc.templates import ModuleSpec, SelfAttention, TransformerConfig


class BiasedRowParallelLinear(RowParallelLinear):
    """A projection with a bias in a model whose MLP has none."""

    def __init__(
        self, in_features: int, out_features: int, mesh: Mesh, *, bias: bool, init_std: float
    ) -> None:
        super().__init__(in_features, out_features, mesh, bias=True, init_std=init_std)


config = TransformerConfig(
    num_layers=24,
    hidden_size=2880,
    num_attention_heads=64,
    num_query_groups=8,
    kv_channels=64,
    ffn_hidden_size=4 * 2880,
    vocab_size=201088,
    max_position_embeddings=131072,
    position_embedding_type="rope",
    rotary_base=150000.0,
    rope_scaling="yarn",
    rope_scaling_factor=32.0,
    rope_scaling_original_max_position_embeddings=4096,
    yarn_beta_fast=32.0,
    yarn_beta_slow=1.0,
    yarn_truncate=False,
    activation="swiglu",
    layernorm_epsilon=1e-5,
    add_qkv_bias=True,
    softmax_type="learnable",
    window_size=128,
    window_attn_skip_freq=2,
)

gpt_oss_20b = decoder(
    config,
    attention=ModuleSpec(
        SelfAttention, submodules={"linear_proj": ModuleSpec(BiasedRowParallelLinear)}
    ),
)
