# Standalone, made by specc 0.1.0 from llama.py: it needs torch alone.
"""A decoder of 1.50 B parameters: 16 layers of 2048, 32 query heads over 8 key/value heads.

- rotary positions, base 500000
- RMS norm before attention and before the MLP
- SwiGLU, 8192 wide
- embedding and output layer untied

Shapes: b sequences; s positions; h hidden; n query heads, g key/value heads and v vocabulary
entries; d per head.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    num_layers: int = 16
    hidden_size: int = 2048
    num_attention_heads: int = 32
    vocab_size: int = 128256
    num_query_groups: int = 8  # key/value heads; each serves a group of queries
    ffn_hidden_size: int = 8192
    rotary_base: float = 500000.0
    layernorm_epsilon: float = 1e-5
    init_method_std: float = 0.02

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class Embedding(nn.Module):
    """Rows of a table by token id, in the dtype that all activations have."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, dtype: torch.dtype, *, init_std: float = 0.02
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim).normal_(std=init_std))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight.to(self.dtype))


class Linear(nn.Module):
    """y = x W^T, plus a bias where there is one: float32 weights, cast to x's dtype."""

    def __init__(self, in_features: int, out_features: int, *, init_std: float = 0.02) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features).normal_(std=init_std))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv 1910.07467)."""

    def __init__(self, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.hidden_size,), self.weight.to(x.dtype), self.eps)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the first channels of each head of x [b, s, n, d] by the tables; the rest passes."""
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # [s, 1, dim], or [b, s, 1, dim]
    turned, rest = x[..., : cos.shape[-1]].float(), x[..., cos.shape[-1] :]
    a, b = turned.chunk(2, -1)
    turned = (turned * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T * scale) v of q [b, s, n, d] and k, v [b, s, g, d]."""
    scale = q.shape[-1] ** -0.5
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    repeats = q.shape[1] // k.shape[1]
    # Its fused kernel there knows no groups, and scores in memory would be large.
    if q.is_cuda and q.dtype == torch.float32 and repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return y.transpose(1, 2)


def rotary_tables(positions: Tensor, dim: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin, each float32 [s, dim], of position * base ** (-2i / dim) for channel pair i."""
    exponents = torch.arange(0, dim, 2, dtype=torch.int64, device=positions.device).float() / dim
    angles = positions.float()[..., None] * (1.0 / base**exponents)  # [.., s, dim / 2]
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


class LanguageModelEmbedding(nn.Module):
    def __init__(self, config: Config, dtype: torch.dtype) -> None:
        super().__init__()
        self.word_embeddings = Embedding(
            config.vocab_size, config.hidden_size, dtype, init_std=config.init_method_std
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.word_embeddings(input_ids)  # [b, s, h]


class SelfAttention(nn.Module):
    """Causal self attention.

    Each key/value head serves a group of query heads.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.group_size = config.num_attention_heads // config.num_query_groups
        # Rows go group by group, [query heads | key | value].
        unit = (self.group_size + 2) * config.head_dim
        self.linear_qkv = Linear(
            config.hidden_size, config.num_query_groups * unit, init_std=config.init_method_std
        )
        self.linear_proj = Linear(
            config.num_attention_heads * config.head_dim,
            config.hidden_size,
            init_std=config.init_method_std / (2 * config.num_layers) ** 0.5,
        )

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        qkv = self.linear_qkv(x)  # [b, s, g * (group + 2) * d]
        qkv = qkv.unflatten(-1, (-1, self.group_size + 2, self.head_dim))
        q, k, v = qkv.split((self.group_size, 1, 1), dim=-2)
        q, k, v = q.flatten(2, 3), k.squeeze(3), v.squeeze(3)  # [b, s, n, d], [b, s, g, d]

        q, k = apply_rotary(q, *rotary), apply_rotary(k, *rotary)
        y = attention(q, k, v)
        return self.linear_proj(y.flatten(2))  # [b, s, h]


class MLP(nn.Module):
    """The feed-forward half of a layer.

    SwiGLU: the first projection's rows alternate gate, up.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.linear_fc1 = Linear(
            config.hidden_size, 2 * config.ffn_hidden_size, init_std=config.init_method_std
        )
        self.linear_fc2 = Linear(
            config.ffn_hidden_size,
            config.hidden_size,
            init_std=config.init_method_std / (2 * config.num_layers) ** 0.5,
        )

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.linear_fc1(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.linear_fc2(F.silu(gate) * up)


class TransformerLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.self_attention = SelfAttention(config)
        self.pre_mlp_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attention(self.input_layernorm(x), rotary)
        return x + self.mlp(self.pre_mlp_layernorm(x))


class TransformerBlock(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([TransformerLayer(config) for _ in range(config.num_layers)])
        self.final_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        rotary = rotary_tables(positions, self.config.head_dim, self.config.rotary_base)
        for layer in self.layers:
            x = layer(x, rotary)
        return self.final_layernorm(x)


class GPTModel(nn.Module):
    def __init__(self, config: Config, dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = LanguageModelEmbedding(config, dtype)
        self.decoder = TransformerBlock(config)
        self.output_layer = Linear(
            config.hidden_size, config.vocab_size, init_std=config.init_method_std
        )

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        """Each token's loss [b, s] where shifted labels are given, else logits [b, s, v]."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.embedding(input_ids)
        x = self.decoder(x, positions)
        logits = self.output_layer(x)
        if labels is None:
            return logits
        flat = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none")
        return flat.view_as(labels)


def build_model(config: Config = Config(), dtype: torch.dtype = torch.float32) -> GPTModel:
    """The model with initial values that torch's generator draws."""
    return GPTModel(config, dtype)
