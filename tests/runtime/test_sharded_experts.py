"""FSDP of experts, over the ranks that hold the same ones; and their checkpoints, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from expert_layer import WIDTH, Experts, choices
from torch import Tensor, nn
from torch.distributed.tensor.placement_types import Shard

from specc.runtime import Mesh, RMSNorm, accumulate, checkpoint, full_tensors, materialize, shard
from specc.runtime.checkpoint_index import SECTIONS
from specc.runtime.checkpoint_read import Stored
from specc.runtime.gradients import gradient_norm, sum_replicated_gradients
from specc.runtime.optimizer import adamw
from specc.runtime.parameters import LocalPart
from specc.runtime.sharded import as_sharded

Ranks = Callable[..., list[Any]]
BATCHES = ("drawn", "none for some")  # the micro-batches of a step


@dataclass(frozen=True)
class Layout:
    """``dims``: along which dimension FSDP cuts the experts' weights; None where it has none."""

    tp: int = 1
    ep: int = 1
    etp: int = 1
    dp_replicate: int = 1
    experts: int = 4
    zero: int | None = None
    dims: tuple[int, ...] | None = None


ONE = Layout()
LAYOUTS = {
    "ep2 zero1": Layout(ep=2, zero=1, dims=(0, 0)),
    "ep2 zero2": Layout(ep=2, zero=2, dims=(0, 0)),
    "ep2 zero3": Layout(ep=2, zero=3, dims=(0, 0)),
    "ep4 zero3": Layout(ep=4, zero=3, dims=(0, 0)),
    "ep1 zero3": Layout(ep=1, zero=3, dims=(0, 0)),
    "ep2 of 2 zero3": Layout(ep=2, experts=2, zero=3, dims=(1, 1)),
    "etp2 of 1 zero2": Layout(etp=2, experts=1, zero=2, dims=(1, 1)),
    "ep2 etp2 zero3": Layout(ep=2, etp=2, zero=3, dims=(0, 0)),
    "tp2 ep2 zero3": Layout(tp=2, ep=2, zero=3, dims=(0, 0)),
    "hsdp ep2 zero3": Layout(ep=2, dp_replicate=2, zero=3, dims=(0, 0)),
    "hsdp ep1 zero2": Layout(dp_replicate=2, zero=2, dims=(0, 0)),
    "tp2 ep2": Layout(tp=2, ep=2),
    "tp2 ep4": Layout(tp=2, ep=4),
    "ep2 etp2": Layout(ep=2, etp=2),
    "ep4": Layout(ep=4),
}


class Layer(nn.Module):
    def __init__(self, mesh: Mesh, experts: int) -> None:
        super().__init__()
        self.norm = RMSNorm(WIDTH)
        self.expert_bias = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.experts = Experts(mesh, experts)

    def forward(self, x: Tensor, probs: Tensor, experts: Tensor) -> Tensor:
        y: Tensor = x + self.experts(self.norm(x), probs, experts)
        return y


class Model(nn.Module):
    def __init__(self, mesh: Mesh, experts: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.layers = nn.ModuleList([Layer(mesh, experts) for _ in range(2)])

    def forward(self, x: Tensor, probs: Tensor, experts: Tensor) -> Tensor:
        x = x * self.scale
        for layer in self.layers:
            x = layer(x, probs, experts)
        return x


def _built(layout: Layout) -> tuple[Mesh, Model]:
    mesh = Mesh.single()
    if dist.is_initialized() and dist.get_world_size() > 1:
        mesh = Mesh.launch(
            tp=layout.tp, ep=layout.ep, etp=layout.etp, dp_replicate=layout.dp_replicate
        )
    zero = layout.zero

    def wrap(model: nn.Module) -> None:
        if zero is not None:
            shard(model, mesh, dtype=torch.float32, zero=zero)

    model = materialize(lambda: Model(mesh, layout.experts), mesh, seed=2, wrap=wrap)
    for layer in model.layers:
        layer.expert_bias.copy_(torch.arange(4) / 3)
    return mesh, model


def _backward(layout: Layout, mesh: Mesh, model: Model) -> None:
    for kind in BATCHES:
        accumulate(model, last=kind == BATCHES[-1])
        x, probs, experts = choices(kind)
        weights = torch.arange(x.numel()).view_as(x).cos()
        own = [t.chunk(mesh.dp.size)[mesh.dp.rank] for t in (x, probs, experts, weights)]
        y = model(own[0], own[1], own[2] % layout.experts)
        (y * own[3]).sum().div(mesh.tp.size).backward()
    sum_replicated_gradients(model, mesh)


def _step(layout: Layout) -> dict[str, Any]:
    mesh, model = _built(layout)
    before = full_tensors(model, mesh)
    _backward(layout, mesh, model)
    weights = [getattr(model.layers[0].experts, name).weight for name in ("up", "down")]
    dims = []
    for weight in weights:
        sharded = as_sharded(weight)
        if sharded is not None:
            dims += [p.dim for p in sharded.placements if isinstance(p, Shard)]
    return {
        "before": before,
        "gradients": full_tensors(model, mesh, grads=True),
        "norm": float(gradient_norm(model, mesh)),
        "dims": tuple(dims) or None,
        "bias": type(model.layers[0].expert_bias),
    }


@cache
def _alone(experts: int) -> dict[str, Any]:
    return _step(replace(ONE, experts=experts))


@pytest.mark.parametrize("name", LAYOUTS)
def test_values_gradients_and_norm_are_those_of_one_process(ranks: Ranks, name: str) -> None:
    layout = LAYOUTS[name]
    one = _alone(layout.experts)
    for found in ranks(4, _step, layout):
        assert found["dims"] == layout.dims
        assert found["bias"] is nn.Parameter  # never cut, never rounded
        assert found["before"].keys() == one["before"].keys()
        for key, value in one["before"].items():
            assert torch.equal(found["before"][key], value), key
        assert found["gradients"].keys() == one["gradients"].keys()
        for key, value in one["gradients"].items():
            # float32 sums of a few dozen terms in another order
            limit = 1e-5 * max(1.0, float(value.abs().max()))
            assert (found["gradients"][key] - value).abs().max() <= limit, key
        assert found["norm"] == pytest.approx(one["norm"], rel=1e-5)


@dataclass(frozen=True)
class _Facts:
    step: int = 1

    def json(self) -> str:
        return "{}"


def _trained(layout: Layout, folder: Path, source: Path | None = None) -> None:
    """Save what a step gives, or what ``source`` has."""
    mesh, model = _built(layout)
    optimizer = adamw(model, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    if source is None:
        _backward(layout, mesh, model)
        optimizer.step()
    else:
        found = checkpoint.find(source)
        checkpoint.load_model(found, model, mesh)
        checkpoint.load_optimizer(found, model, optimizer, mesh, 1)
    saver = checkpoint.Saver(folder, mesh)
    saver.save(model, optimizer, _Facts())  # type: ignore[arg-type]
    saver.finish()


def _read(folder: Path) -> dict[str, Tensor]:
    found = {}
    for section in SECTIONS:
        stored = Stored(checkpoint.find(folder), section)
        for name, saved in stored.tensors.items():
            whole = LocalPart((0,) * len(saved.shape), tuple(saved.shape))
            found[name] = stored.read(name, whole)
    return found


CHAINS = {
    4: ("ep4", "ep2 etp2", "tp2 ep2", "ep2 zero3", "hsdp ep2 zero3", "tp2 ep4"),
    2: ("ep2 of 2 zero3",),
    1: ("etp2 of 1 zero2",),
}


@pytest.mark.parametrize("experts", CHAINS)
def test_a_checkpoint_moves_between_layouts(ranks: Ranks, tmp_path: Path, experts: int) -> None:
    """From each layout into one process and into the next, parameters and optimizer's states."""
    one = replace(ONE, experts=experts)
    layouts = [LAYOUTS[name] for name in CHAINS[experts]]
    _trained(one, tmp_path / "one")
    before = tmp_path / "one"
    for number, layout in enumerate(layouts):
        into, back = tmp_path / f"into {number}", tmp_path / f"back {number}"
        trained = tmp_path / f"trained {number}"
        ranks(4, _trained, layout, into, before)
        ranks(4, _trained, layout, trained)
        _trained(one, back, trained)
        for first, second in ((before, into), (trained, back)):
            a, b = _read(first), _read(second)
            assert a.keys() == b.keys()
            for name, value in a.items():
                assert torch.equal(b[name], value), (layout, name)
        before = trained
    saved = _read(before)
    assert torch.equal(saved["layers.1.expert_bias"], torch.arange(4) / 3)
    assert saved["optim.exp_avg.layers.0.experts.up.weight"].abs().max() > 0
