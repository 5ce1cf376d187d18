"""Qwen2.5 7B, 7,615,616,512 parameters, 6,525,621,760 without both tables.

Qwen team, "Qwen2.5 Technical Report" (arXiv 2412.15115), table 1: 28 layers, 28 heads over 4
key/value heads, untied. Model card of Qwen/Qwen2.5-7B: 7.61B parameters, 6.53B non-embedding,
rotary positions, SwiGLU, RMS norm, biases of q, k and v. config.json of Qwen/Qwen2.5-7B-Instruct:
hidden_size 3584, intermediate_size 18944, vocab_size 152064, max_position_embeddings 32768,
rope_theta 1000000.0, rms_norm_eps 1e-06, initializer_range 0.02, use_sliding_window false.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=28,
    hidden_size=3584,
    num_attention_heads=28,
    num_query_groups=4,
    ffn_hidden_size=18944,
    vocab_size=152064,
    max_position_embeddings=32768,
    position_embedding_type="rope",
    rotary_base=1000000.0,
    activation="swiglu",
    layernorm_epsilon=1e-6,
    add_qkv_bias=True,
)

qwen25_7b = decoder(config)
