"""A page as one of a user's own class: its mean loss over whole logits, plain PyTorch inside."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    RowParallelLinear,
    VocabParallelEmbedding,
    materialize,
)

LOSS = "local_mean"


@dataclass(frozen=True)
class Config:
    hidden_size: int = 16
    vocab_size: int = 256
    max_position_embeddings: int = 16


class Mixer(nn.Module):
    """Every place sees the mean of those before it, through a cut MLP."""

    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.up = ColumnParallelLinear(config.hidden_size, 4 * config.hidden_size, mesh)
        self.down = RowParallelLinear(4 * config.hidden_size, config.hidden_size, mesh)

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        y = self.norm(x).cumsum(1) / count
        return x + self.down(torch.tanh(self.up(y)))


class UserModel(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.embeddings = VocabParallelEmbedding(config.vocab_size, config.hidden_size, mesh)
        self.scale = nn.Parameter(torch.ones(config.hidden_size))
        self.between = nn.Linear(config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([Mixer(config, mesh) for _ in range(2)])
        self.output_layer = ColumnParallelLinear(
            config.hidden_size, config.vocab_size, mesh, gather_output=True, pad=True
        )

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        x = self.between(self.embeddings(input_ids) * self.scale)
        for layer in self.layers:
            x = layer(x)
        logits = self.output_layer(x)
        if labels is None:
            return logits
        loss = nn.CrossEntropyLoss(ignore_index=-100)
        return loss(logits.view(-1, logits.size(-1)), labels.reshape(-1)), logits


def build_model(
    mesh: Mesh, config: Config = Config(), *, seed: int = 0, device: str = "cpu"
) -> UserModel:
    return materialize(lambda: UserModel(config, mesh), mesh, seed=seed, device=device)
