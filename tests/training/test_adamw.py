"""AdamW with the clip's factor in its step: torch's own, and one compiled kernel."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from specc.runtime import Mesh, shard
from specc.runtime.adamw import AdamW, _update
from specc.runtime.parameters import local_tensor

SHAPES = ((16, 12), (7,), (8,), (1,), (), (3, 4))
RARE = 5  # its index: the one that has a gradient in some steps only
BETAS, EPS = (0.9, 0.999), 1e-8


@pytest.fixture
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same operations one by one: a compile takes seconds."""
    monkeypatch.setattr("specc.runtime.adamw._compiled_update", lambda: _update)


def _made(compiled: bool) -> tuple[list[nn.Parameter], AdamW]:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator) for shape in SHAPES]
    parameters = [nn.Parameter(value) for value in [*values, torch.arange(12.0).view(3, 4).t()]]
    groups = [
        {"params": parameters[:3], "weight_decay": 0.1},
        {"params": parameters[3:], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=0.0, betas=BETAS, eps=EPS, compiled=compiled)
    for p in parameters:
        optimizer.state[p] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return parameters, optimizer


def _steps(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], fold: bool) -> None:
    """Five steps, each with another rate and factor, which is in the gradients unless ``fold``."""
    generator = torch.Generator().manual_seed(1)
    for step in range(5):
        scale = torch.tensor(1.0 - 0.15 * step)
        for index, p in enumerate(parameters):
            p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=generator))
            if not fold:
                p.grad *= scale
            if index == RARE and step != 2:
                p.grad = None
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (step + 1)
        if fold:
            optimizer.step(scale=scale)
        else:
            optimizer.step()


def _held(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = [optimizer.state[p][name] for p in parameters for name in ("exp_avg", "exp_avg_sq")]
    return [p.detach() for p in parameters] + states


def _close(found: list[Tensor], right: list[Tensor]) -> None:
    for a, b in zip(found, right, strict=True):
        # Both round the same few operations once each: a handful of float32 roundings (6e-8).
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("compiled", [False, True])
def test_equals_torch_on_scaled_gradients(not_compiled: None, compiled: bool) -> None:
    plain = _made(False)
    right = torch.optim.AdamW(plain[1].param_groups, betas=BETAS, eps=EPS)
    _steps(right, plain[0], fold=False)
    parameters, optimizer = _made(compiled)
    _steps(optimizer, parameters, fold=True)
    _close(_held(parameters, optimizer), _held(plain[0], right))
    assert [float(optimizer.state[p]["step"]) for p in parameters] == [5, 5, 5, 5, 5, 1, 5]


def test_two_graphs_serve_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of any size, one of a single element (never symbolic), one of a transposed matrix."""
    graphs = CompileCounterWithBackend("aot_eager")
    update = torch.compile(_update, fullgraph=True, dynamic=True, backend=graphs)
    monkeypatch.setattr("specc.runtime.adamw._compiled_update", lambda: update)
    plain, right = _made(False)
    parameters, optimizer = _made(True)
    _steps(right, plain, fold=True)
    _steps(optimizer, parameters, fold=True)
    _close(_held(parameters, optimizer), _held(plain, right))
    assert graphs.frame_count == 3


def test_no_scale_is_one(not_compiled: None) -> None:
    first, second = _made(True), _made(True)
    for parameters, _ in (first, second):
        for p in parameters:
            p.grad = torch.ones_like(p)
    first[1].step()
    second[1].step(scale=torch.ones(()))
    for a, b in zip(_held(*first), _held(*second), strict=True):
        assert torch.equal(a, b)


def test_without_gradients_nothing_moves() -> None:
    for compiled in (False, True):
        parameters, optimizer = _made(compiled)
        before = [p.detach().clone() for p in parameters]
        optimizer.step(scale=torch.ones(()))
        assert all(map(torch.equal, before, parameters))


def test_shards_equal_the_whole(ranks) -> None:
    ranks(2, _shards)


def _shards() -> None:
    mesh = Mesh.launch(dp=2)
    whole, cut = (_model() for _ in range(2))
    shard(cut, mesh, dtype=torch.float32)
    import specc.runtime.adamw as module

    kept, module._compiled_update = module._compiled_update, lambda: _update
    try:
        for model, compiled in ((whole, False), (cut, True)):
            optimizer = AdamW(
                [{"params": list(model.parameters()), "weight_decay": 0.1}],
                lr=1e-2,
                betas=BETAS,
                compiled=compiled,
            )
            for p in model.parameters():
                optimizer.state[p] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                }
                p.grad = p.detach().clone() * 0.5 + 0.1
            optimizer.step(scale=torch.tensor(0.5))
    finally:
        module._compiled_update = kept
    for a, b in zip(cut.parameters(), whole.parameters(), strict=True):
        part = b.chunk(2)[dist.get_rank()] if dist.get_rank() < len(b.chunk(2)) else b[:0]
        # One rounding of each of a few operations.
        torch.testing.assert_close(local_tensor(a), part.detach(), rtol=1e-6, atol=1e-7)


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 1))  # one row: the second rank has none
