"""A user's own decoder: plain PyTorch modules at every place where tp may cut an activation.

Plain `nn.Linear`, `nn.LayerNorm` and bare parameters stand between the layers, on the heads of one
rank, and after the gather, on hidden states and on logits.
"""

import torch
import torch.nn.functional as F
from torch import nn

from specc.runtime import ColumnParallelLinear, RowParallelLinear
from specc.templates import (
    MLP,
    LanguageModelEmbedding,
    MegatronModule,
    ModuleSpec,
    TransformerBlock,
    TransformerConfig,
    TransformerLanguageModelOutputLayer,
)


class HeadwiseAttention(nn.Module):
    """Attention whose heads share one linear layer, one norm and one scale."""

    def __init__(self, config, linear_qkv, linear_proj):
        super().__init__()
        self.head_dim = config.head_dim
        self.linear_qkv = linear_qkv
        self.query_norm = nn.LayerNorm(self.head_dim)
        self.mix = nn.Linear(self.head_dim, self.head_dim)
        self.scale = nn.Parameter(torch.randn(self.head_dim))
        self.linear_proj = linear_proj

    def forward(self, x):
        q, k, v = self.linear_qkv(x).unflatten(-1, (-1, 3, self.head_dim)).unbind(-2)
        q = self.query_norm(q)
        v = self.mix(v)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.linear_proj((y * self.scale).flatten(2))


class Layer(nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.attention = attention
        self.between = nn.Linear(config.hidden_size, config.hidden_size)
        self.shift = nn.Parameter(torch.randn(config.hidden_size) * 0.1)
        self.mlp_norm = nn.LayerNorm(config.hidden_size)
        self.mlp = mlp

    def forward(self, x, positions, rotary=None, attention_mask=None):
        x = x + self.attention(self.norm(x))
        x = x + torch.tanh(self.between(x)) + self.shift
        return x + self.mlp(self.mlp_norm(x))


class Decoder(MegatronModule):
    """Two heads: one whose logits are gathered, and a plain one on gathered hidden states."""

    def __init__(self, config, embeddings, decoder, gather, output_layer):
        super().__init__(config)
        self.embeddings = embeddings
        self.scale = nn.Parameter(torch.randn(config.hidden_size) * 0.1 + 1)
        self.decoder = decoder
        self.gather = gather
        self.gathered_norm = nn.LayerNorm(config.hidden_size)
        self.second_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.output_layer = output_layer
        self.logit_shift = nn.Parameter(torch.randn(config.vocab_size) * 0.1)
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, input_ids, labels=None):
        x = self.decoder(self.embeddings(input_ids) * self.scale)
        logits = self.output_layer(x) * self.temperature + self.logit_shift
        logits = logits + self.second_head(torch.tanh(self.gathered_norm(self.gather(x))))
        if labels is None:
            return logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return loss, logits


config = TransformerConfig(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=8,
    vocab_size=131,
    max_position_embeddings=16,
    ffn_hidden_size=96,
    position_embedding_type="learned_absolute",
    add_bias_linear=True,
    init_method_std=0.1,
)

attention = ModuleSpec(
    HeadwiseAttention,
    submodules={
        "linear_qkv": ModuleSpec(
            ColumnParallelLinear,
            params={"in_features": 64, "out_features": 192, "bias": True, "unit": 24},
        ),
        "linear_proj": ModuleSpec(
            RowParallelLinear, params={"in_features": 64, "out_features": 64, "bias": True}
        ),
    },
)

user_decoder = ModuleSpec(
    Decoder,
    params={"config": config},
    submodules={
        "embeddings": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock,
            params={
                "layer_spec": ModuleSpec(
                    Layer, submodules={"attention": attention, "mlp": ModuleSpec(MLP)}
                )
            },
        ),
        "gather": ModuleSpec(
            ColumnParallelLinear,
            params={"in_features": 64, "out_features": 64, "gather_output": True},
        ),
        "output_layer": ModuleSpec(TransformerLanguageModelOutputLayer),
    },
)
