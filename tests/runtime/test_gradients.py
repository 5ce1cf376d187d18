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
from specc.runtime.positions import own_places

B, S, H, HEADS, WIDTH, V = 8, 16, 12, 4, 6, 13
RARE = 7  # a token that stands in one place of the batch


class Layer(nn.Module):
    """Ours around a user's: plain modules between the layers and on local heads.

    Also what is awkward: a parameter without dimensions, a frozen one, one that only some calls
    use, and one that none does.
    """

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(H)
        self.up = ColumnParallelLinear(H, HEADS * WIDTH, mesh, bias=True, unit=WIDTH, init_std=0.3)
        self.on_heads = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.randn(WIDTH) * 0.1 + 1)
        self.down = RowParallelLinear(HEADS * WIDTH, H, mesh, bias=True, init_std=0.3)
        self.between = nn.Linear(H, H)
        self.shift = nn.Parameter(torch.randn(H) * 0.1)
        self.gain = nn.Parameter(torch.tensor(0.7))
        self.frozen = nn.Parameter(torch.randn(H) * 0.1, requires_grad=False)
        self.rare = nn.Parameter(torch.randn(WIDTH) * 0.1)
        self.never = nn.Parameter(torch.randn(3, H))

    def forward(self, x: Tensor, rare: Tensor) -> Tensor:
        y = self.up(self.norm(x)).unflatten(-1, (-1, WIDTH))  # [b, s, n, d], n on this rank
        y = self.on_heads(y) * self.scale
        if rare.any():
            y = y + self.rare * rare[..., None, None]
        x = x + self.down(F.gelu(y).flatten(2))
        return x + self.between(torch.tanh(x)) * self.gain + self.shift + self.frozen


class Model(nn.Module):
    def __init__(self, mesh: Mesh, tied: bool) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(V, H, mesh, init_std=0.5)
        self.layers = nn.ModuleList([Layer(mesh) for _ in range(2)])
        self.norm = nn.LayerNorm(H)
        self.head = ColumnParallelLinear(H, V, mesh, gather_output=True, pad=True, init_std=0.3)
        self.after = nn.Linear(V, V)  # after the gather
        self.temperature = nn.Parameter(torch.tensor(1.3))
        self.rare = nn.Parameter(torch.randn(V) * 0.1)
        self.never = nn.Parameter(torch.randn(V))
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        rare = ids == RARE
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, rare)
        y = self.after(self.head(self.norm(x))) * self.temperature
        return y + self.rare * rare[..., None] if rare.any() else y


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(V, (B, S), generator=generator)
    ids[ids == RARE] = 1
    ids[5, 3] = RARE
    labels = torch.randint(V, (B, S), generator=generator)
    labels[0, :5] = labels[3] = labels[6, 1:] = -100  # uneven between ranks and micro-batches
    return ids, labels


def _step(mesh: Mesh, zero: int | None, accumulation: int, tied: bool) -> dict[str, Any]:
    wrap = (lambda m: shard(m, mesh, dtype=torch.float32, zero=zero)) if zero else None
    model = materialize(lambda: Model(mesh, tied), mesh, wrap=wrap)
    ids, labels = _batch()
    tokens = (labels != -100).sum()
    places = own_places(S, mesh)
    mine = slice(mesh.dp.rank, None, mesh.dp.size)
    total = torch.zeros(())
    for number, (x, y) in enumerate(
        zip(
            ids[mine, places].chunk(accumulation),
            labels[mine, places].chunk(accumulation),
            strict=True,
        )
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


def _compare(tp: int, cp: int, dp: int, sequence_parallel: bool) -> None:
    expected = {tied: _step(Mesh.single(), None, 1, tied) for tied in (False, True)}
    for replicate in (1, 2, 4):
        if dp % replicate:
            continue
        mesh = Mesh.launch(
            tp=tp, cp=cp, dp=dp, dp_replicate=replicate, sequence_parallel=sequence_parallel
        )
        for zero in (None, 1, 2, 3) if replicate == 1 else (1, 2, 3):
            for accumulation, tied in ((2, True),) if zero in (1, 2) else ((1, False), (2, True)):
                got = _step(mesh, zero, accumulation, tied)
                _assert_equal(got, expected[tied], (replicate, zero, accumulation, tied))


def _assert_equal(got: dict[str, Any], expected: dict[str, Any], case: Any) -> None:
    assert got["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-5), case
    assert got["norm"].item() == pytest.approx(expected["norm"].item(), rel=1e-5), case
    for key in ("gradients", "clipped"):
        # Nothing frozen, and nothing that no rank used.
        assert got[key].keys() == expected[key].keys(), case
        for name, value in expected[key].items():
            error = (got[key][name] - value).abs().max()
            assert error <= 1e-5 * value.abs().max(), (case, key, name, error, value.abs().max())
            assert value.abs().max() > 0, name
    joint = math.sqrt(sum(float(g.double().square().sum()) for g in got["clipped"].values()))
    assert joint == pytest.approx(0.1, rel=1e-4)


LAYOUTS = [
    (tp, cp, dp, sequence_parallel)
    for tp in (1, 2, 4)
    for cp in (1, 2, 4)
    for dp in (1, 2, 4)
    for sequence_parallel in ((False, True) if tp > 1 else (False,))
    if tp * cp * dp <= 4
]


@pytest.mark.parametrize(("tp", "cp", "dp", "sequence_parallel"), LAYOUTS)
def test_equals_one_process(ranks, tp: int, cp: int, dp: int, sequence_parallel: bool) -> None:
    ranks(tp * cp * dp, _compare, tp, cp, dp, sequence_parallel)


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
