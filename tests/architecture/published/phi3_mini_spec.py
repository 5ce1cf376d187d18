"""Phi-3-mini with its context of 4k, 3,821,079,552 parameters.

Abdin et al., "Phi-3 Technical Report" (arXiv 2404.14219), section 2: 32 layers, 32 heads, 3072
wide, a vocabulary of 32,064, 3.8B parameters. config.json of microsoft/Phi-3-mini-4k-instruct:
num_key_value_heads 32, intermediate_size 8192, max_position_embeddings 4096, sliding_window 2047,
rope_theta 10000.0, rms_norm_eps 1e-05, hidden_act silu (gate and up as in Llama), initializer_range
0.02, tie_word_embeddings false, all dropout 0.0.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=3072,
    num_attention_heads=32,
    ffn_hidden_size=8192,
    vocab_size=32064,
    max_position_embeddings=4096,
    position_embedding_type="rope",
    rotary_base=10000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
    window_size=2047,
)

phi3_mini = decoder(config)
