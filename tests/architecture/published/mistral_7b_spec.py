"""Mistral 7B v0.1, 7,241,732,096 parameters.

Jiang et al., "Mistral 7B" (arXiv 2310.06825), table 1: dim 4096, n_layers 32, head_dim 128,
hidden_dim 14336, n_heads 32, n_kv_heads 8, window_size 4096, vocab_size 32000. config.json of
mistralai/Mistral-7B-v0.1: max_position_embeddings 32768, rope_theta 10000.0, rms_norm_eps 1e-05,
sliding_window 4096, initializer_range 0.02, tie_word_embeddings false.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    ffn_hidden_size=14336,
    vocab_size=32000,
    max_position_embeddings=32768,
    position_embedding_type="rope",
    rotary_base=10000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
    window_size=4096,
)

mistral_7b = decoder(config)
