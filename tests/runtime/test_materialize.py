"""Materialized models: equal at every layout, ties and table kept, values from names alone."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

from specc.runtime import (
    ColumnParallelLinear,
    Constant,
    Mesh,
    Normal,
    RowParallelLinear,
    VocabParallelEmbedding,
    full_tensors,
    local_part,
    materialize,
    parameter_table,
    shard,
)
from specc.runtime.parameters import canonical_parameters, local_tensor

MESH = Mesh.single()


class Ours(nn.Module):
    def __init__(self, mesh: Mesh, vocabulary: int = 13) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(vocabulary, 8, mesh)
        self.layers = nn.ModuleList([nn.Sequential(), nn.Sequential()])
        for layer in self.layers:
            layer.append(ColumnParallelLinear(8, 20, mesh, bias=True))
            layer.append(nn.Linear(5, 5))
            layer.append(RowParallelLinear(20, 8, mesh, bias=True))
        self.head = ColumnParallelLinear(8, vocabulary, mesh, pad=True)
        self.head.weight = self.embedding.weight
        self.bare = nn.Parameter(torch.randn(8) * 0.1)
        self.register_buffer("table", torch.arange(4.0) / 3)


def _equal_values(tp: int, fsdp: bool) -> None:
    mesh = Mesh.launch(tp=tp)
    wrap = (lambda m: shard(m, mesh, dtype=torch.bfloat16)) if fsdp else None
    model = materialize(lambda: Ours(mesh), mesh, seed=3, wrap=wrap)
    one = materialize(lambda: Ours(MESH), MESH, seed=3)
    got, expected = full_tensors(model, mesh), full_tensors(one, MESH)
    assert list(got) == list(expected)
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.table, one.table)
    covered = {name: torch.zeros(t.shape) for name, t in expected.items()}
    for name, record, parameter in canonical_parameters(model):
        part, local = local_part(record, parameter, mesh), local_tensor(parameter)
        part.of(covered[name]).add_(1)
        assert torch.equal(part.valid(local), part.of(expected[name]))
        assert local.abs().sum() == part.valid(local).abs().sum()  # padding is zero
    for name, count in covered.items():  # every entry is held by equally many ranks
        dist.all_reduce(count)
        assert count.min() == count.max() >= 1, name


@pytest.mark.parametrize(("size", "tp"), [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize("fsdp", [False, True])
def test_equal_at_every_layout(ranks, size: int, tp: int, fsdp: bool) -> None:
    ranks(size, _equal_values, tp, fsdp)


def test_the_table() -> None:
    model = materialize(lambda: Ours(MESH), MESH)
    table = parameter_table(model)
    assert table is model._parameter_table
    assert table["head.weight"].tied_to == "embedding.weight"
    assert table["layers.1.2.weight"].dim == 1
    assert table["layers.0.1.weight"].law is None
    assert set(table) == {n for n, _ in model.named_parameters(remove_duplicate=False)}


def test_a_module_built_before_keeps_its_values() -> None:
    before = nn.Linear(3, 4)
    model = materialize(lambda: nn.Sequential(before, nn.Linear(4, 2)), MESH)
    assert torch.equal(model[0].weight, before.weight) and model[0].weight.requires_grad


def test_nested_builds_and_the_meta_device() -> None:
    inner: list[nn.Module] = []

    def build() -> nn.Module:
        inner.append(materialize(lambda: nn.Linear(2, 2), MESH, seed=9))
        return nn.Sequential(*inner)

    model = materialize(build, MESH, seed=1)
    plain = materialize(lambda: nn.Sequential(nn.Linear(2, 2)), MESH, seed=1)
    assert torch.equal(model[0].weight, plain[0].weight)
    meta = materialize(lambda: Ours(MESH), MESH, device="meta")
    assert all(p.is_meta for p in meta.parameters()) and "bare" in meta._parameter_table


def test_a_build_does_not_import_the_graph_compiler() -> None:
    """It takes seconds, which a compile of a spec would pay."""
    script = (
        "import sys; from torch import nn; from specc.runtime import Mesh, materialize; "
        "materialize(lambda: nn.Linear(2, 2), Mesh.single(), device='meta'); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_fills_of_a_layers_parameter_become_its_law() -> None:
    def build() -> nn.Module:
        model = Ours(MESH)
        nn.init.zeros_(model.layers[0][2].weight)
        nn.init.normal_(model.layers[1][2].weight, 1.0, 0.5)
        nn.init.constant_(model.layers[0][0].bias, 3.0)
        return model

    table = parameter_table(materialize(build, MESH, seed=2))
    assert table["layers.0.2.weight"].law == Constant(0.0)
    assert table["layers.1.2.weight"].law == Normal(0.5, 1.0)
    assert table["layers.0.0.bias"].law == Constant(3.0)
