"""Llama 3 70B, 70,553,706,496 parameters.

Grattafiori et al. (arXiv 2407.21783), table 3: 80 layers of 8192, FFN 28,672, 64 heads over 8
key/value heads. The rest is the 8B's, see llama3_8b_spec.py; config.json of
meta-llama/Meta-Llama-3-70B agrees.
"""

from dataclasses import replace

from llama3_8b_spec import config as small
from published_parts import decoder

config = replace(
    small, num_layers=80, hidden_size=8192, num_attention_heads=64, ffn_hidden_size=28672
)

llama3_70b = decoder(config)
