"""Llama 3.1 70B: Llama 3 70B with a context of 131,072.

Grattafiori et al. (arXiv 2407.21783), table 3, and config.json of meta-llama/Llama-3.1-70B: as
llama3_70b_spec.py has it, but max_position_embeddings 131072, and rope_scaling with rope_type
llama3, factor 8.0, low_freq_factor 1.0, high_freq_factor 4.0, original_max_position_embeddings
8192.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=80,
    hidden_size=8192,
    num_attention_heads=64,
    num_query_groups=8,
    ffn_hidden_size=28672,
    vocab_size=128256,
    max_position_embeddings=131072,
    position_embedding_type="rope",
    rotary_base=500000.0,
    rope_scaling="llama3",
    rope_scaling_factor=8.0,
    rope_scaling_low_freq_factor=1.0,
    rope_scaling_high_freq_factor=4.0,
    rope_scaling_original_max_position_embeddings=8192,
    activation="swiglu",
    layernorm_epsilon=1e-5,
)

llama31_70b = decoder(config)
