"""Constructors that are not ours: what they draw and compute is replayed, or refused by line."""

import math
import random
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    RowParallelLinear,
    materialize,
)
from specc.runtime.creation_log import ConstructorError

MESH = Mesh.single()


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
