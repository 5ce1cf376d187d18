"""Llama 2 70B, 68,976,648,192 parameters.

Touvron et al. (arXiv 2307.09288), table 1: grouped queries, a context of 4k. config.json of
meta-llama/Llama-2-70b-hf: num_hidden_layers 80, hidden_size 8192, num_attention_heads 64,
num_key_value_heads 8, intermediate_size 28672; the rest is the 7B's, see llama2_7b_spec.py.
"""

from dataclasses import replace

from llama2_7b_spec import config as small
from published_parts import decoder

config = replace(
    small,
    num_layers=80,
    hidden_size=8192,
    num_attention_heads=64,
    num_query_groups=8,
    ffn_hidden_size=28672,
)

llama2_70b = decoder(config)
