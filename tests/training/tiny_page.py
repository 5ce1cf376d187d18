"""A page written by hand for the tests: a decoder with every kind of parallel layer."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Dropout,
    Mesh,
    Positions,
    RMSNorm,
    RowParallelLinear,
    VocabParallelEmbedding,
    apply_rotary,
    attention,
    linear_cross_entropy,
    materialize,
    rotary_tables,
)

LOSS = "per_token"


@dataclass(frozen=True)
class Config:
    num_layers: int = 2
    hidden_size: int = 32
    num_attention_heads: int = 4
    num_query_groups: int = 2
    ffn_hidden_size: int = 64
    vocab_size: int = 257  # odd, so that tp 2 pads it
    max_position_embeddings: int = 32
    rotary_base: float = 10000.0
    layernorm_epsilon: float = 1e-5
    hidden_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_query_groups:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_query_groups {self.num_query_groups}"
            )

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class SelfAttention(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.head_dim = config.head_dim
        self.group_size = config.num_attention_heads // config.num_query_groups
        self.linear_qkv = ColumnParallelLinear(
            config.hidden_size,
            config.num_query_groups * (self.group_size + 2) * self.head_dim,
            mesh,
            bias=True,
            unit=(self.group_size + 2) * self.head_dim,
        )
        self.linear_proj = RowParallelLinear(
            config.num_attention_heads * self.head_dim, config.hidden_size, mesh, bias=True
        )

    def forward(self, x: Tensor, positions: Positions, rotary: tuple[Tensor, Tensor]) -> Tensor:
        qkv = self.linear_qkv(x)
        qkv = qkv.unflatten(-1, (-1, self.group_size + 2, self.head_dim))
        q, k, v = qkv.split((self.group_size, 1, 1), dim=-2)
        q, k, v = q.flatten(2, 3), k.squeeze(3), v.squeeze(3)
        q, k = apply_rotary(q, *rotary), apply_rotary(k, *rotary)
        return self.linear_proj(attention(q, k, v, positions, self.mesh).flatten(2))


class MLP(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.linear_fc1 = ColumnParallelLinear(
            config.hidden_size, 2 * config.ffn_hidden_size, mesh, unit=2
        )
        self.linear_fc2 = RowParallelLinear(config.ffn_hidden_size, config.hidden_size, mesh)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.linear_fc1(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.linear_fc2(F.silu(gate) * up)


class TransformerLayer(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.self_attention = SelfAttention(config, mesh)
        self.pre_mlp_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.mlp = MLP(config, mesh)
        self.dropout = Dropout(config.hidden_dropout, mesh)

    def forward(self, x: Tensor, positions: Positions, rotary: tuple[Tensor, Tensor]) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary)
        x = x + self.dropout(y, positions)
        return x + self.mlp(self.pre_mlp_layernorm(x))


class GPTModel(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.config = config
        self.embedding = VocabParallelEmbedding(config.vocab_size, config.hidden_size, mesh)
        self.layers = nn.ModuleList(
            [TransformerLayer(config, mesh) for _ in range(config.num_layers)]
        )
        self.final_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.output_layer = ColumnParallelLinear(
            config.hidden_size, config.vocab_size, mesh, gather_output=True, pad=True
        )

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, positions: Positions | None = None
    ) -> Tensor:
        positions = positions or Positions.of(input_ids, self.mesh)
        rotary = rotary_tables(positions, self.config.head_dim, self.config.rotary_base)
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, positions, rotary)
        x = self.final_layernorm(x)
        if labels is None:
            return self.output_layer(x)
        return linear_cross_entropy(x, self.output_layer, labels, self.mesh)


def build_model(
    mesh: Mesh, config: Config = Config(), *, seed: int = 0, device: str = "cpu"
) -> GPTModel:
    return materialize(lambda: GPTModel(config, mesh), mesh, seed=seed, device=device)
