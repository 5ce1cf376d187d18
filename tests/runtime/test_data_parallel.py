"""FSDP2: its units, one rank in bf16 bit for bit, and how often it communicates."""

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from specc.runtime import (
    ColumnParallelLinear,
    LayerNorm,
    Mesh,
    RMSNorm,
    RowParallelLinear,
    VocabParallelEmbedding,
    accumulate,
    full_tensors,
    materialize,
    shard,
)
from specc.runtime.compile import compile_layers
from specc.runtime.data_parallel import layers, units
from specc.runtime.recompute import Recompute, apply_recompute

V, H = 40, 16


class Layer(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.norm = RMSNorm(H)
        self.up = ColumnParallelLinear(H, 4 * H, mesh, bias=True, init_std=0.2)
        self.down = RowParallelLinear(4 * H, H, mesh, bias=True, init_std=0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, mesh: Mesh, tied: bool) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(V, H, mesh, init_std=0.5)
        self.layers = nn.ModuleList([Layer(mesh) for _ in range(3)])
        self.norm = LayerNorm(H)
        self.head = ColumnParallelLinear(H, V, mesh, init_std=0.2)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        # The head's weight beside its forward, as a loss in pieces uses it.
        return F.linear(self.norm(x), self.head.weight.to(x.dtype)).float()


def _gradients(mesh: Mesh, zero: int | None, tied: bool) -> tuple[Tensor, dict[str, Tensor]]:
    wrap = (lambda m: shard(m, mesh, dtype=torch.bfloat16, zero=zero)) if zero else None
    model = materialize(lambda: Model(mesh, tied), mesh, wrap=wrap)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for turn in range(3):
        ids = torch.randint(V, (4, 9), generator=generator)
        accumulate(model, last=turn == 2)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses), full_tensors(model, mesh, grads=True)


def _bit_for_bit(zero: int, tied: bool) -> None:
    mesh = Mesh.launch(dtype=torch.bfloat16)
    losses, gradients = _gradients(mesh, zero, tied)
    plain_losses, plain = _gradients(Mesh.single(torch.bfloat16), None, tied)
    assert torch.equal(losses, plain_losses)
    assert gradients.keys() == plain.keys()
    for name, value in plain.items():
        assert gradients[name].dtype == torch.float32
        assert torch.equal(gradients[name], value), name
        assert value.abs().max() > 0


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_bf16_on_one_rank_equals_no_fsdp_bit_for_bit(ranks, zero: int, tied: bool) -> None:
    ranks(1, _bit_for_bit, zero, tied)


class Collectives(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.seen[func.overloadpacket.__name__.strip("_")] += 1
        return func(*args, **(kwargs or {}))


def _counted(zero: int, replicate: int) -> dict[str, int]:
    mesh = Mesh.launch(dp_replicate=replicate)
    model = materialize(
        lambda: Model(mesh, False), mesh, wrap=lambda m: shard(m, mesh, dtype=mesh.dtype, zero=zero)
    )
    optimizer = torch.optim.SGD(model.parameters())
    counter = Collectives()
    for step in range(2):  # the first sets things up
        for last in (False, False, True):
            accumulate(model, last=last)
            with counter if step else nullcontext():
                model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return dict(counter.seen)


@pytest.mark.parametrize(("size", "replicate"), [(2, 1), (4, 2), (2, 2)])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_collectives_of_a_step(ranks, zero: int, size: int, replicate: int) -> None:
    units, micro_batches = 3, 3
    gathers = units * micro_batches * 2 + 1 if zero == 3 else units + 1
    scatters = (units + 1) * (1 if zero == 1 else micro_batches)
    copies = units + 1  # a group is reduced over its copies once
    expected = {"allgather_base": gathers, "reduce_scatter_base": scatters, "allreduce": copies}
    if replicate == 1:
        del expected["allreduce"]
    if replicate == size:
        expected = {"allreduce": copies}  # nothing is cut
    for seen in ranks(size, _counted, zero, replicate):
        assert seen == expected


def _held(zero: int) -> tuple[bool, bool, bool]:
    """Between two micro-batches: are layers' parameters whole, are gradients, and the root's?"""
    mesh = Mesh.launch()
    model = materialize(
        lambda: Model(mesh, False),
        mesh,
        wrap=lambda m: shard(m, mesh, dtype=mesh.dtype, zero=zero),
    )
    accumulate(model, last=False)
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    weights = [layer.up.weight for layer in model.layers]
    whole = {not isinstance(weight, DTensor) for weight in weights}
    with_gradient = {not (isinstance(w, DTensor) or w.grad is None) for w in weights}
    return whole.pop(), with_gradient.pop(), not isinstance(model.norm.weight, DTensor)


@pytest.mark.parametrize(
    ("zero", "parameters", "gradients"), [(1, True, True), (2, True, False), (3, False, False)]
)
def test_what_is_whole_between_micro_batches(
    ranks, zero: int, parameters: bool, gradients: bool
) -> None:
    assert ranks(2, _held, zero) == [(parameters, gradients, True)] * 2


def test_units_are_elements_of_the_outermost_lists() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2)
            deep = nn.Sequential(nn.ModuleList([nn.Linear(2, 2)]), nn.Linear(2, 2))
            self.layers = nn.ModuleList([deep, nn.ModuleList([nn.Linear(2, 2)]), nn.Identity()])
            self.inside = nn.Sequential(nn.ModuleList([nn.Linear(3, 3)]))
            self.again = nn.ModuleList([deep])

    model = Nested()
    assert units(model) == [model.layers[0], model.layers[1][0], model.inside[0][0]]


def test_units_that_share_a_parameter_are_left_to_the_root() -> None:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])
    model.layers[1].weight = model.layers[0].weight
    model.head = nn.Linear(2, 2)
    model.head.bias = model.layers[2].bias
    assert units(model) == [model.layers[3]]
    assert layers(model) == list(model.layers)  # recompute and compile are for all


class Shared(nn.Module):
    """One layer called three times, and two layers that share a weight."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(V, H, mesh, init_std=0.5)
        self.same = nn.ModuleList([Layer(mesh)] * 3)
        self.tied = nn.ModuleList([Layer(mesh), Layer(mesh)])
        self.tied[1].up.weight = self.tied[0].up.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in [*self.same, *self.tied]:
            x = layer(x)
        return x


def _shared(zero: int, again: bool) -> None:
    def gradients(mesh: Mesh, fsdp: bool) -> dict[str, Tensor]:
        def wrap(model: nn.Module) -> None:
            if again:
                apply_recompute(layers(model), Recompute("full"))
                compile_layers(layers(model), backend="aot_eager")
            shard(model, mesh, dtype=torch.float32, zero=zero)

        model = materialize(lambda: Shared(mesh), mesh, wrap=wrap if fsdp else None)
        ids = torch.arange(V).view(4, 10)[mesh.dp.rank :: mesh.dp.size]
        model(ids).square().sum().backward()
        return full_tensors(model, mesh, grads=True)

    got, expected = gradients(Mesh.launch(), True), gradients(Mesh.single(), False)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert (got[name] - value).abs().max() <= 1e-5 * value.abs().max(), name


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("again", [False, True])
def test_shared_layers_and_shared_weights(ranks, zero: int, again: bool) -> None:
    ranks(2, _shared, zero, again)


def test_a_mesh_without_processes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Mesh\.launch\(\), not Mesh\.single\(\)"):
        shard(nn.Linear(2, 2), Mesh.single(), dtype=torch.float32)


def _no_stage() -> None:
    with pytest.raises(ValueError, match=r"zero=4 is not a stage of ZeRO; there are 1, 2 and 3"):
        shard(nn.Linear(2, 2), Mesh.launch(), dtype=torch.float32, zero=4)


def test_an_unknown_stage_is_refused(ranks) -> None:
    ranks(1, _no_stage)


def _groups() -> None:
    mesh = Mesh.launch()
    model = materialize(
        lambda: Model(mesh, False), mesh, wrap=lambda m: shard(m, mesh, dtype=torch.float32)
    )
    sharded = [name for name, m in model.named_modules() if isinstance(m, FSDPModule)]
    assert sharded == ["", "layers.0", "layers.1", "layers.2"]
    assert list(model.state_dict()) == list(
        materialize(lambda: Model(Mesh.single(), False), Mesh.single()).state_dict()
    )
    assert dist.get_world_size() == 2


def test_groups_and_names(ranks) -> None:
    ranks(2, _groups)
