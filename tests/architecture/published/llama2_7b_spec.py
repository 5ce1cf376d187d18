"""Llama 2 7B, 6,738,415,616 parameters.

Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models" (arXiv 2307.09288): section
2.2 has RMS norm before each half, SwiGLU, rotary positions, and 32,000 tokens; table 1 a context of
4k, and grouped queries from 34B on. config.json of meta-llama/Llama-2-7b-hf: num_hidden_layers 32,
hidden_size 4096, num_attention_heads 32, num_key_value_heads 32, intermediate_size 11008,
vocab_size 32000, max_position_embeddings 4096, rms_norm_eps 1e-05, initializer_range 0.02,
tie_word_embeddings false; rope_theta is the class's 10000.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    ffn_hidden_size=11008,
    vocab_size=32000,
    max_position_embeddings=4096,
    position_embedding_type="rope",
    rotary_base=10000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
)

llama2_7b = decoder(config)
