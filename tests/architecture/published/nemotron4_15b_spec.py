"""Nemotron-4 15B: 12.5B parameters beside 3.1B in its two tables.

Parmar et al., "Nemotron-4 15B Technical Report" (arXiv 2402.16819), section 2 and table 1: 32
layers of 6144, 48 heads over 8 key/value heads, 4096 places, vocabulary 256,000; rotary positions,
squared ReLU, no biases, no dropout, untied; 3.2B embedding and 12.5B other parameters. The width of
the MLP, 24576, the part of a head that is rotated, 0.5, and the layer norm with weights that count
from one are those of transformers' Nemotron (configuration_nemotron.py, modeling_nemotron.py:
intermediate_size, partial_rotary_factor, NemotronLayerNorm1P, norm_eps 1e-5).
"""

from published_parts import decoder

from specc.templates import LayerNorm, TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=6144,
    num_attention_heads=48,
    num_query_groups=8,
    ffn_hidden_size=24576,
    vocab_size=256000,
    max_position_embeddings=4096,
    position_embedding_type="rope",
    rotary_base=10000.0,
    rotary_percent=0.5,
    activation="squared_relu",
    layernorm_epsilon=1e-5,
    layernorm_zero_centered_gamma=True,
)

nemotron4_15b = decoder(config, norm=LayerNorm)
