"""Llama 3 405B as it was pre-trained at 8,192 places: 405,853,388,800 parameters.

Grattafiori et al. (arXiv 2407.21783), table 3: 126 layers of 16,384, FFN 53,248, 128 heads over 8
key/value heads; section 3.2.1: 3.8e25 FLOPs on 15.6T tokens. The rest is the 8B's, see
llama3_8b_spec.py.
"""

from dataclasses import replace

from llama3_8b_spec import config as small
from published_parts import decoder

config = replace(
    small, num_layers=126, hidden_size=16384, num_attention_heads=128, ffn_hidden_size=53248
)

llama3_405b = decoder(config)
