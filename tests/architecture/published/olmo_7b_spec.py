"""OLMo 7B, 6,888,095,744 parameters: Llama 2's shape, and layer norms without weights.

Groeneveld et al., "OLMo: Accelerating the Science of Language Models" (arXiv 2402.00838), table 1
and section 2.1: 32 layers, 4096 wide, 32 heads, no biases, layer norm without adaptive gain and
bias, SwiGLU, rotary positions, 2048 places, a vocabulary of 50,280 padded to 50,304. config.json of
allenai/OLMo-7B-hf: intermediate_size 11008, vocab_size 50304, rope_theta 10000.0,
max_position_embeddings 2048, tie_word_embeddings false; modeling_olmo.py of transformers: the norm
is computed in float32, with an epsilon of 1e-5.

No template is a norm without weights: the class below is.
"""

import torch.nn.functional as F
from published_parts import decoder
from torch import Tensor, nn

from specc.templates import TransformerConfig


class PlainLayerNorm(nn.Module):
    """Layer norm without weights, in float32."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), (self.hidden_size,), eps=self.eps).to(x.dtype)


config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    ffn_hidden_size=11008,
    vocab_size=50304,
    max_position_embeddings=2048,
    position_embedding_type="rope",
    rotary_base=10000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
)

olmo_7b = decoder(config, norm=PlainLayerNorm)
