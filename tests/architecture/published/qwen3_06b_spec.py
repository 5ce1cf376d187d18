"""Qwen3 0.6B, 596,049,920 parameters: one table, and heads wider than the model divided by them.

Qwen team (arXiv 2505.09388), table 1: 28 layers, 16 heads over 8 key/value heads, tied. Model card
of Qwen/Qwen3-0.6B: 0.6B parameters, 0.44B non-embedding. config.json of Qwen/Qwen3-0.6B-Base:
hidden_size 1024, intermediate_size 3072, head_dim 128, tie_word_embeddings true; the rest is the
8B's, see qwen3_8b_spec.py.
"""

from dataclasses import replace

from published_parts import decoder
from qwen3_8b_spec import config as large

config = replace(
    large,
    num_layers=28,
    hidden_size=1024,
    num_attention_heads=16,
    ffn_hidden_size=3072,
    untie_embeddings_and_output_weights=False,
)

qwen3_06b = decoder(config)
