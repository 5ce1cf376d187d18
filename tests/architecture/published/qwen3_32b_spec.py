"""Qwen3 32B, 32,762,123,264 parameters.

Qwen team (arXiv 2505.09388), table 1: 64 layers, 64 heads over 8 key/value heads, untied. Model
card of Qwen/Qwen3-32B: 32.8B parameters, 31.2B non-embedding. config.json of Qwen/Qwen3-32B:
hidden_size 5120, intermediate_size 25600, head_dim 128, max_position_embeddings 40960; the rest is
the 8B's, see qwen3_8b_spec.py.
"""

from dataclasses import replace

from published_parts import decoder
from qwen3_8b_spec import config as small

config = replace(
    small,
    num_layers=64,
    hidden_size=5120,
    num_attention_heads=64,
    ffn_hidden_size=25600,
    max_position_embeddings=40960,
)

qwen3_32b = decoder(config)
