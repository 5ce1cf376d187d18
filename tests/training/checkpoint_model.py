"""A small model with every kind of tensor that a checkpoint holds, and values for all of them.

Values come from the law of initial values, by name and global index, so that every rank can say
what its part of any tensor must be.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    Normal,
    RMSNorm,
    RowParallelLinear,
    VocabParallelEmbedding,
    local_part,
    materialize,
    shard,
)
from specc.runtime.checkpoint import Facts, Saver, load_model, load_optimizer
from specc.runtime.checkpoint_plan import model_tensors, optimizer_tensors
from specc.runtime.initial_values import fill
from specc.runtime.optimizer import adamw
from specc.runtime.parameters import ParameterRecord, local_tensor

VOCABULARY = 13  # tp 2 and 4 pad it


class Block(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.norm = RMSNorm(8)
        self.fc1 = ColumnParallelLinear(8, 12, mesh, bias=True)
        self.fc2 = RowParallelLinear(12, 8, mesh, bias=True)


class Small(nn.Module):
    """A tied and padded vocabulary, cut and whole weights, a number, a frozen one, a buffer."""

    def __init__(self, mesh: Mesh, vocabulary: int) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(vocabulary, 8, mesh)
        self.layers = nn.ModuleList([Block(mesh) for _ in range(2)])
        self.output = ColumnParallelLinear(8, vocabulary, mesh, pad=True)
        self.output.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros(5))


def build(
    mesh: Mesh, zero: int = 3, vocabulary: int = VOCABULARY
) -> tuple[nn.Module, torch.optim.Optimizer]:
    def wrap(model: nn.Module) -> None:
        if mesh.dp_cp.size > 1:
            shard(model, mesh, dtype=torch.float32, zero=zero)

    model = materialize(lambda: Small(mesh, vocabulary), mesh, seed=0, wrap=wrap)
    return model, adamw(model, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def everything(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, tuple[Tensor, ParameterRecord]]:
    return {**model_tensors(model), **optimizer_tensors(model, optimizer)}


@torch.no_grad()
def expected(name: str, tensor: Tensor, record: ParameterRecord, mesh: Mesh, seed: int) -> Tensor:
    """This rank's part of a tensor, padding and all."""
    part = local_part(record, tensor, mesh)
    values = torch.zeros_like(local_tensor(tensor))
    law = Normal(1.0)
    fill(part.valid(values), law, shape=record.shape, part=part, seed=seed, name=name)
    return values


@torch.no_grad()
def set_values(model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh, seed: int) -> None:
    """Give all tensors the values that ``seed`` stands for."""
    for name, (tensor, record) in everything(model, optimizer).items():
        local_tensor(tensor).copy_(expected(name, tensor, record, mesh, seed))


def differing(
    model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh, seed: int
) -> list[str]:
    """Names of the tensors that are not, bit for bit, what ``seed`` stands for."""
    return [
        name
        for name, (tensor, record) in everything(model, optimizer).items()
        if not torch.equal(local_tensor(tensor), expected(name, tensor, record, mesh, seed))
    ]


def facts(step: int) -> Facts:
    return Facts(
        page="c02e9b14",
        config={"vocab_size": VOCABULARY},
        seed=0,
        seq_length=16,
        tokenizer="bytes 0",
        text="0 of 0 tokens",
        step=step,
        sequences=8 * step,
        schedule={"lr": 1e-3},
        written_at={},
    )


def launch(layout: dict[str, Any]) -> Mesh:
    """The mesh of a layout like {"tp": 2, "zero": 1}: dp is what is left of the ranks."""
    return Mesh.launch(**{key: value for key, value in layout.items() if key != "zero"})


def write(
    folder: Path, layout: dict[str, Any], steps: int = 1, asynchronous: bool = False, keep: int = 9
) -> None:
    """Save steps 1 to ``steps``; a step's values are those of the seed of that number."""
    mesh = launch(layout)
    model, optimizer = build(mesh, layout.get("zero", 3))
    saver = Saver(folder, mesh, keep=keep, asynchronous=asynchronous)
    for step in range(1, steps + 1):
        set_values(model, optimizer, mesh, seed=step)
        saver.save(model, optimizer, facts(step))
    saver.finish()


def read(checkpoint: Path, layout: dict[str, Any] | None, seed: int) -> list[str]:
    """Load at a layout (None: one process, no group); names of tensors that are not as written."""
    mesh = Mesh.single() if layout is None else launch(layout)
    model, optimizer = build(mesh, (layout or {}).get("zero", 3))
    load_model(checkpoint, model, mesh)
    load_optimizer(checkpoint, model, optimizer, mesh, step=seed)
    return differing(model, optimizer, mesh, seed)
