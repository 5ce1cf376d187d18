"""The one gradient rule, on a model with every kind of parameter, at every layout."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    RowParallelLinear,
    VocabParallelEmbedding,
    accumulate,
    clip_gradients,
    full_tensors,
    load_full_tensors,
    materialize,
    shard,
    sum_replicated_gradients,
)

B, S, H, HEADS, WIDTH, V = 8, 8, 12, 4, 6, 13


class Layer(nn.Module):
    """Ours around a user's: plain modules between the layers and on local heads."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(H)
        self.up = ColumnParallelLinear(H, HEADS * WIDTH, mesh, bias=True, unit=WIDTH, init_std=0.3)
        self.on_heads = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.randn(WIDTH) * 0.1 + 1)
        self.down = RowParallelLinear(HEADS * WIDTH, H, mesh, bias=True, init_std=0.3)
        self.between = nn.Linear(H, H)
        self.shift = nn.Parameter(torch.randn(H) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.norm(x)).unflatten(-1, (-1, WIDTH))  # [b, s, n, d], n on this rank
        y = self.on_heads(y) * self.scale
        x = x + self.down(F.gelu(y).flatten(2))
        return x + self.between(torch.tanh(x)) + self.shift


class Model(nn.Module):
    def __init__(self, mesh: Mesh, tied: bool) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(V, H, mesh, init_std=0.5)
        self.layers = nn.ModuleList([Layer(mesh) for _ in range(2)])
        self.norm = nn.LayerNorm(H)
        self.head = ColumnParallelLinear(H, V, mesh, gather_output=True, pad=True, init_std=0.3)
        self.after = nn.Linear(V, V)  # after the gather
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.after(self.head(self.norm(x)))


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(V, (B, S), generator=generator)
    labels = torch.randint(V, (B, S), generator=generator)
    labels[0, :5] = labels[3] = labels[6, 1:] = -100  # uneven between ranks and micro-batches
    return ids, labels


def _step(mesh: Mesh, *, fsdp: bool, accumulation: int, tied: bool) -> dict[str, Any]:
    wrap = (lambda m: shard(m, mesh, dtype=torch.float32)) if fsdp else None
    model = materialize(lambda: Model(mesh, tied), mesh, wrap=wrap)
    ids, labels = _batch()
    tokens = (labels != -100).sum()
    mine = slice(mesh.dp.rank, None, mesh.dp.size)
    total = torch.zeros(())
    for number, (x, y) in enumerate(
        zip(ids[mine].chunk(accumulation), labels[mine].chunk(accumulation), strict=True)
    ):
        accumulate(model, last=number == accumulation - 1)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        loss = loss / tokens / mesh.tp.size
        loss.backward()
        total += loss.detach()
    sum_replicated_gradients(model, mesh)
    if mesh.size > 1:
        dist.all_reduce(total)
    gradients = full_tensors(model, mesh, grads=True)
    norm = clip_gradients(model, mesh, 0.1)
    clipped = full_tensors(model, mesh, grads=True)
    return {"loss": total, "norm": norm, "gradients": gradients, "clipped": clipped}


def _compare(tp: int, sequence_parallel: bool, fsdp: bool, accumulation: int, tied: bool) -> None:
    mesh = Mesh.launch(tp=tp, sequence_parallel=sequence_parallel)
    got = _step(mesh, fsdp=fsdp, accumulation=accumulation, tied=tied)
    expected = _step(Mesh.single(), fsdp=False, accumulation=1, tied=tied)
    assert got["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-5)
    assert got["norm"].item() == pytest.approx(expected["norm"].item(), rel=1e-5)
    for key in ("gradients", "clipped"):
        assert got[key].keys() == expected[key].keys()
        for name, value in expected[key].items():
            error = (got[key][name] - value).abs().max()
            assert error <= 1e-5 * value.abs().max(), (key, name, error, value.abs().max())
            assert value.abs().max() > 0, name
    joint = math.sqrt(sum(float(g.double().square().sum()) for g in got["clipped"].values()))
    assert joint == pytest.approx(0.1, rel=1e-4)


LAYOUTS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]


@pytest.mark.parametrize(("accumulation", "tied"), [(1, False), (2, True)])
@pytest.mark.parametrize("fsdp", [False, True])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize(("tp", "dp"), LAYOUTS)
def test_equals_one_process(
    ranks, tp: int, dp: int, sequence_parallel: bool, fsdp: bool, accumulation: int, tied: bool
) -> None:
    ranks(tp * dp, _compare, tp, sequence_parallel, fsdp, accumulation, tied)


def _unused(tp: int) -> None:
    """A parameter for each rank's loss, and one for none."""
    mesh = Mesh.launch(tp=tp)
    model = materialize(lambda: nn.ParameterList([torch.ones(n) for n in range(1, 6)]), mesh)
    (model[mesh.rank] * 2.0).sum().backward()
    sum_replicated_gradients(model, mesh)
    for number, parameter in enumerate(model):
        if number < 4:
            assert parameter.grad.tolist() == [2.0] * (number + 1)
        else:
            assert parameter.grad is None  # else the optimizer would decay it


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_parameter_used_on_one_rank_only_or_on_none(ranks, tp: int) -> None:
    ranks(4, _unused, tp)


def _round_trip(tp: int, fsdp: bool) -> None:
    mesh = Mesh.launch(tp=tp)
    wrap = (lambda m: shard(m, mesh, dtype=torch.float32)) if fsdp else None
    model = materialize(lambda: Model(mesh, True), mesh, wrap=wrap)
    one = materialize(lambda: Model(Mesh.single(), True), Mesh.single(), seed=5)
    other = full_tensors(one, Mesh.single())
    load_full_tensors(model, mesh, other)
    got = full_tensors(model, mesh)
    assert got.keys() == other.keys() and "head.weight" not in got
    assert all(torch.equal(got[name], other[name]) for name in other)
    with pytest.raises(KeyError, match=r"missing \['norm.bias'\], unknown \['extra'\]"):
        short = {k: v for k, v in other.items() if k != "norm.bias"}
        load_full_tensors(model, mesh, {**short, "extra": torch.ones(1)})
    with pytest.raises(ValueError, match=r"norm.bias has shape \(12,\), but a tensor of \(3,\)"):
        load_full_tensors(model, mesh, {**other, "norm.bias": torch.ones(3)})


@pytest.mark.parametrize(("size", "tp"), [(1, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("fsdp", [False, True])
def test_full_tensors_and_back(ranks, size: int, tp: int, fsdp: bool) -> None:
    ranks(size, _round_trip, tp, fsdp)
