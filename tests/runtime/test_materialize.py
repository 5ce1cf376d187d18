"""Initial values: from names alone, equal at every cut; constructors of others replayed."""

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Constant,
    LocalPart,
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
from specc.runtime.creation_log import ConstructorError
from specc.runtime.initial_values import fill, name_key, splitmix64
from specc.runtime.parameters import canonical_parameters, local_tensor

MESH = Mesh.single()
GOLDEN = [
    "0x1.8466cc0000000p-6",
    "0x1.0c0d060000000p-7",
    "0x1.9bc58e0000000p-6",
    "0x1.41922e0000000p-6",
    "-0x1.0025020000000p-5",
    "-0x1.03f6a20000000p-6",
]


# -- the counter hash


def _splitmix64(index: int, key: int) -> int:
    """The published algorithm, in Python's integers."""
    mask = (1 << 64) - 1
    z = ((index + 1) * 0x9E3779B97F4A7C15 + key) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))
def test_splitmix64_is_the_published_one(index: int, key: int) -> None:
    assert splitmix64(torch.tensor([index]), key).item() % 2**64 == _splitmix64(index, key)


def test_splitmix64_known_value() -> None:
    # The first output of java.util.SplittableRandom's mixer from state 0.
    assert splitmix64(torch.tensor([0]), 0).item() % 2**64 == 0xE220A8397B1DCDAF


def _whole(shape: tuple[int, ...], seed: int = 0, name: str = "w") -> Tensor:
    return _part(shape, LocalPart((0,) * len(shape), shape), seed, name)


def _part(shape: tuple[int, ...], part: LocalPart, seed: int = 0, name: str = "w") -> Tensor:
    target = torch.empty(part.extent)
    fill(target, Normal(0.02), shape=shape, part=part, seed=seed, name=name)
    return target


def test_golden_values() -> None:
    """Written down: a change of these changes every model's start."""
    got = _whole((2, 3), seed=7, name="decoder.layers.0.mlp.linear_fc1.weight")
    assert [x.hex() for x in got.double().flatten().tolist()] == GOLDEN


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_slice_equals_the_whole_bit_for_bit(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    offset = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    extent = tuple(data.draw(st.integers(0, n - o)) for n, o in zip(shape, offset, strict=True))
    part = LocalPart(offset, extent)
    assert torch.equal(_part(shape, part), part.of(_whole(shape)))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _whole((50, 7))
    monkeypatch.setattr("specc.runtime.initial_values._CHUNK", 16)
    assert torch.equal(_whole((50, 7)), whole)


def test_the_law_is_normal() -> None:
    x = _whole((1000, 1000)).double().flatten() / 0.02
    assert abs(x.mean()) < 4e-3 and abs(x.std() - 1) < 4e-3
    assert abs((x**4).mean() - 3) < 0.03
    ordered = x.sort().values
    expected = torch.special.ndtr(ordered)
    uniform = (torch.arange(len(x), dtype=torch.float64) + 0.5) / len(x)
    assert (expected - uniform).abs().max() < 2e-3  # Kolmogorov-Smirnov at about p = 0.001
    rows = x.view(1000, 1000)
    assert abs((rows[:, 1:] * rows[:, :-1]).mean()) < 4e-3  # neighbours are independent
    assert abs((rows[1:] * rows[:-1]).mean()) < 4e-3


def test_seed_and_name_change_everything() -> None:
    a, b, c = _whole((40,)), _whole((40,), seed=1), _whole((40,), name="v")
    assert not ((a == b) | (a == c) | (b == c)).any()
    assert name_key(1, "2:x") != name_key(12, ":x")


# -- whole models


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


class Plain(nn.Module):
    """Everything that a user's constructor may do."""

    def __init__(self, swapped: bool = False, noise: int = 0) -> None:
        super().__init__()
        torch.randn(noise)  # used by nothing
        parts: list[tuple[str, Callable[[], nn.Module]]] = [
            ("linear", lambda: nn.Linear(3, 4)),
            ("norm", lambda: nn.LayerNorm(4)),
            ("words", lambda: nn.Embedding(5, 6, padding_idx=1)),
            ("lstm", lambda: nn.LSTM(3, 4)),
            ("spectral", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))),
        ]
        for name, make in reversed(parts) if swapped else parts:
            self.add_module(name, make())
        nn.init.trunc_normal_(self.linear.weight, std=0.5)
        nn.init.orthogonal_(self.lstm.weight_hh_l0)
        self.scaled = nn.Parameter(torch.randn(8) * 0.1)
        shared = torch.randn(4)
        self.one, self.two = nn.Parameter(shared.clone()), nn.Parameter(2 * shared)
        self.register_buffer("ramp", torch.arange(4, device="cpu").float() / 3)
        self.register_buffer("listed", torch.tensor([1.0, 2.0, 3.0]), persistent=False)
        self.register_buffer("mask", torch.ones(4, 4).tril().bool())
        self.register_buffer("features", torch.randn(2, 3))
        self.inverse = 1.0 / 100 ** (torch.arange(0, 8, 2) / 8)  # a plain attribute
        self.rates = [x.item() for x in torch.linspace(0, 0.3, 4)]
        self.listed_rates = torch.linspace(0, 0.3, 4).tolist()
        self.nested = {"parameter": self.scaled, "ramp": (self.ramp, torch.eye(2))}
        self.array = torch.from_numpy(np.arange(3.0)) * 2
        steps = torch.arange(4.0)
        steps[steps > 1] = 7
        self.steps, self.large = steps, steps[steps > 1]
        self.rows = self.words.weight  # a tie
        self.unwritten = nn.Parameter(torch.empty(3))
        with torch.no_grad():
            self.linear.bias.view(2, 2)[0].fill_(9)


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def test_computed_values_are_what_the_constructor_computes() -> None:
    model, real = materialize(Plain, MESH), Plain()
    for name in ("ramp", "listed", "mask", "inverse", "array", "steps", "large"):
        assert torch.equal(getattr(model, name), getattr(real, name)), name
    assert (model.rates, model.listed_rates) == (real.rates, real.listed_rates)
    assert model.nested["parameter"] is model.scaled
    assert model.nested["ramp"][0] is model.ramp
    assert torch.equal(model.nested["ramp"][1], torch.eye(2))
    assert model.rows is model.words.weight
    assert model.linear.bias[:2].tolist() == [9, 9]
    assert model.words.weight[1].tolist() == [0.0] * 6
    assert model.unwritten.tolist() == [0.0] * 3
    assert model.norm.weight.tolist() == [1.0] * 4
    assert torch.equal(model.two, 2 * model.one)
    q = model.lstm.weight_hh_l0.detach()
    torch.testing.assert_close(q.T @ q, torch.eye(4))
    assert model.lstm(torch.zeros(2, 1, 3))[0].shape == (2, 1, 4)
    assert list(model.state_dict()) == list(real.state_dict())
    assert not any(p.is_meta for p in model.parameters())


def test_drawn_values_follow_the_constructors_laws() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(100, 400)
            self.bare = nn.Parameter(torch.randn(40000) * 0.1)
            self.cut = nn.Parameter(torch.empty(40000))
            nn.init.trunc_normal_(self.cut, std=2.0, a=-1.0, b=3.0)

    model = materialize(Wide, MESH)
    assert 0.0995 < model.linear.weight.abs().max() <= 0.1
    assert model.linear.weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.02)
    assert model.bare.std().item() == pytest.approx(0.1, rel=0.02)
    assert -1 <= model.cut.min() < -0.99 and 2.9 < model.cut.max() <= 3


def test_no_order_of_construction_shows() -> None:
    a = _values(materialize(Plain, MESH))
    b = _values(materialize(lambda: Plain(swapped=True, noise=17), MESH))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    c = _values(materialize(Plain, MESH, seed=1))
    assert not torch.equal(a["linear.weight"], c["linear.weight"])
    assert not torch.equal(a["features"], c["features"])
    x = materialize(lambda: nn.ModuleList([nn.Linear(3, 3)]), MESH)
    y = materialize(lambda: nn.ModuleList([nn.Linear(3, 3)] * 2), MESH)
    assert y[0] is y[1] and torch.equal(x[0].weight, y[1].weight)


def test_the_callers_generators_are_left_alone() -> None:
    random.seed(0)
    before = torch.random.get_rng_state(), random.getstate(), str(np.random.get_state())
    materialize(lambda: (torch.manual_seed(3), Plain())[1], MESH)
    after = torch.random.get_rng_state(), random.getstate(), str(np.random.get_state())
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]
    torch.manual_seed(5)
    a = _values(materialize(Plain, MESH))
    torch.manual_seed(6)
    b = _values(materialize(Plain, MESH))
    assert all(torch.equal(a[name], b[name]) for name in a)


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


# -- what is refused


def _looks(module: nn.Module) -> None:
    module.value = torch.randn(3).sum().item()  # <- line


def _branches(module: nn.Module) -> None:
    w = torch.rand(3)
    module.w = nn.Parameter(w if w.sum() > 1 else -w)  # <- line


def _lists(module: nn.Module) -> None:
    w = nn.Linear(2, 2).weight
    module.values = w.tolist()  # <- line


def _own_generator(module: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    module.w = nn.Parameter(torch.randn(3, generator=generator))  # <- line


def _scales(module: nn.Module) -> None:
    module.layer = ColumnParallelLinear(4, 4, MESH)
    module.layer.weight.data.mul_(2)  # <- line


def _fills_a_part(module: nn.Module) -> None:
    module.layer = ColumnParallelLinear(4, 4, MESH)
    module.layer.weight.data[0].zero_()  # <- line


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_looks, "reads a value that was drawn at random"),
        (_branches, "reads a value that was drawn at random"),
        (_lists, "reads a value that was drawn at random"),
        (_own_generator, "draws from a generator of its own"),
        (_scales, "changes layer.weight, whose values its layer states"),
        (_fills_a_part, "changes layer.weight, whose values its layer states"),
    ],
)
def test_refusals_name_the_line(act: Callable[[nn.Module], None], message: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            act(self)

    with pytest.raises(ConstructorError, match=message) as error:
        materialize(Model, MESH)
    found = re.match(r"(.*):(\d+): ", str(error.value))
    assert found and found[1] == __file__
    with open(__file__) as file:
        assert file.readlines()[int(found[2]) - 1].rstrip().endswith("# <- line")


def test_other_refusals() -> None:
    class Random(nn.Module):
        def __init__(self, draw: Callable[[], float]) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(draw()))

    with pytest.raises(ConstructorError, match="drew from Python's random"):
        materialize(lambda: Random(random.random), MESH)
    with pytest.raises(ConstructorError, match=r"drew from numpy\.random"):
        materialize(lambda: Random(np.random.rand), MESH)

    class Derived(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))
            self.double = self.w * 2

    with pytest.raises(ConstructorError, match=r"Derived\.double is computed from a parameter"):
        materialize(Derived, MESH)
    outside = torch.empty(3, device="meta")
    with pytest.raises(ConstructorError, match="on the meta device came from outside"):
        materialize(lambda: nn.ParameterList([outside * 1]), MESH)

    def contradiction() -> nn.Module:
        model = nn.Sequential(ColumnParallelLinear(4, 4, MESH), RowParallelLinear(4, 4, MESH))
        model[1].weight = model[0].weight
        return model

    with pytest.raises(ValueError, match=r"0.weight and 1.weight are one parameter, but the first"):
        materialize(contradiction, MESH)


def test_a_mistake_in_a_constructor_stays_the_users_own() -> None:
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        materialize(lambda: torch.cat([torch.randn(3, 2), torch.randn(2, 3)]), MESH)  # type: ignore
    assert nn.init.trunc_normal_(torch.empty(3)).abs().sum() > 0  # all is as before
    assert materialize(lambda: nn.Linear(2, 2), MESH).weight.abs().sum() > 0
