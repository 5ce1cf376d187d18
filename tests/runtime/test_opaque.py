"""What a compiled layer calls without looking into it has the values and gradients of eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from specc.runtime import CausalConv1d, Mesh, Positions, gated_delta_rule
from specc.runtime.announce import mixers
from specc.runtime.opaque import KERNELS, opaque


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> str:
    def call(x: Tensor, weight: Tensor | None, rest: Tensor | None, times: int) -> Tensor:
        y = x if weight is None else x @ weight
        return times * (y if rest is None else y + rest).tanh().transpose(0, 1)

    monkeypatch.setitem(KERNELS, "of the test", call)
    return "of the test"


def test_a_run_says_what_computes_its_mixers() -> None:
    mixer = nn.Sequential(CausalConv1d(1, 2, 3, Mesh.single()))
    (told,) = mixers(mixer, torch.device("cpu"))
    assert told.startswith("mixers: convolution by plain PyTorch, state space by plain PyTorch")
    assert not list(mixers(nn.Linear(2, 2), torch.device("cpu")))


def compare(run: Callable[..., Tensor], *inputs: Tensor) -> None:
    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    found = []
    for call in (run, compiled):
        y = call(*inputs)
        found.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for eager, graph in zip(*found, strict=True):
        assert eager.shape == graph.shape
        torch.testing.assert_close(eager, graph, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_kernel(kernel: str, weighted: bool) -> None:
    x, weight = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    rest = torch.ones(4)

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        return opaque(kernel, x, (x.sin(), *weights) if weighted else (x, None), rest, (3,)).cos()

    compare(run, *((x, weight) if weighted else (x,)))


def test_the_chunks_of_a_delta_rule() -> None:
    length = 150  # three chunks
    positions = Positions.of(torch.zeros(1, length, dtype=torch.int64), Mesh.single())
    inputs = [
        torch.randn(1, length, 2, 4),
        torch.randn(1, length, 2, 4),
        torch.randn(1, length, 2, 3, 5),
        -torch.rand(1, length, 2, 3),
        torch.rand(1, length, 2, 3),
    ]
    compare(lambda *own: gated_delta_rule(*own, positions), *(x.requires_grad_() for x in inputs))
