"""Qwen3 8B, 8,190,735,360 parameters.

Qwen team, "Qwen3 Technical Report" (arXiv 2505.09388), table 1: 36 layers, 32 heads over 8
key/value heads, untied; section 2: norms of q and k in place of Qwen2.5's biases. Model card of
Qwen/Qwen3-8B: 8.2B parameters, 6.95B non-embedding. config.json of Qwen/Qwen3-8B-Base: hidden_size
4096, intermediate_size 12288, head_dim 128, vocab_size 151936, max_position_embeddings 32768,
rope_theta 1000000, rms_norm_eps 1e-06, attention_bias false, initializer_range 0.02.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=36,
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    kv_channels=128,
    ffn_hidden_size=12288,
    vocab_size=151936,
    max_position_embeddings=32768,
    position_embedding_type="rope",
    rotary_base=1000000.0,
    activation="swiglu",
    layernorm_epsilon=1e-6,
    qk_layernorm=True,
)

qwen3_8b = decoder(config)
