"""GPT-2 XL, 1,557,611,200 parameters.

Radford et al. (2019), table 2: 48 layers of 1600. config.json of openai-community/gpt2-xl: n_layer
48, n_embd 1600, n_head 25; the rest is GPT-2 small's, see gpt2_small_spec.py.
"""

from dataclasses import replace

from gpt2_small_spec import config as small
from published_parts import decoder

from specc.templates import LayerNorm

config = replace(small, num_layers=48, hidden_size=1600, num_attention_heads=25)

gpt2_xl = decoder(config, norm=LayerNorm)
