"""The two halves of a backward sum to the whole, and the first leaves the weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime.pipeline_split import SplitBackward


class _Product(torch.autograd.Function):
    """A function of Python that gives gradients of both at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return gradient @ weight.T, x.T @ gradient


class _Stage(nn.Module):
    """``use`` of x and of the weights a and b, between two nonlinearities."""

    def __init__(self, use: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(x.tanh(), self.a, self.b).tanh()


USES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "one after the other": lambda x, a, b: (x @ a).relu() @ b,
    "a weight twice": lambda x, a, b: ((x @ a).tanh() @ a) * b.sum(),
    "a weight that meets no input first": lambda x, a, b: x @ (a @ b.tanh()),
    "parts of one result": lambda x, a, b: torch.mul(*(x @ torch.cat((a, b), 1)).chunk(2, 1)),
    "several outputs, weights behind each": lambda x, a, b: sum(
        y @ w for y, w in zip(torch.cat((x, x * 2)).unbind(0), (a, b, a, b), strict=False)
    )
    * torch.ones(6, 1),
    "a function of Python": lambda x, a, b: _Product.apply(_Product.apply(x, a).tanh(), b),
    "a weight's own way beside the input, at two places": lambda x, a, b: torch.mul(
        torch.mul(x @ b, a.tanh().sum(0)).tanh() @ b, a.tanh().sum(0)
    ),
    "weights that share one place of two": lambda x, a, b: x * (a @ b).sum(0) + x.tanh() @ b.sin(),
    "a weight without a use": lambda x, a, b: F.linear(x, a),
    "an addition of a weight": lambda x, a, b: x @ a + b.sum(0),
}


@pytest.mark.parametrize("loss", [True, False])
@pytest.mark.parametrize("use", USES)
def test_halves_are_the_whole(use: str, loss: bool) -> None:
    """Of a middle stage and of the last, over three micro-batches under way at once."""
    torch.manual_seed(0)
    stage = _Stage(USES[use])
    inputs = [torch.randn(6, 4, requires_grad=True) for _ in range(3)]

    def output(x: Tensor) -> Tensor:
        y: Tensor = stage(x)
        return y.square().sum() if loss else y

    gradients = [None if loss else torch.randn(6, 4) for _ in inputs]
    for x, gradient in zip(inputs, gradients, strict=True):
        torch.autograd.backward(output(x), gradient)
    wanted_x = [x.grad for x in inputs]
    wanted = {name: p.grad for name, p in stage.named_parameters()}
    stage.zero_grad()

    fresh = [x.detach().requires_grad_() for x in inputs]
    outputs = [output(x) for x in fresh]
    split = SplitBackward(stage, first=False)
    found = [
        split.input(number, y, gradient, x)
        for number, (y, gradient, x) in enumerate(zip(outputs, gradients, fresh, strict=True))
    ]
    assert all(p.grad is None for p in stage.parameters())
    for number in (0, 2, 1):
        split.weight(number)
    split.finish()
    for a, b in zip(found, wanted_x, strict=True):
        assert a is not None and b is not None
        torch.testing.assert_close(a, b)
    for name, parameter in stage.named_parameters():
        if wanted[name] is None:
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, wanted[name])


def test_the_first_stage_has_weights_only() -> None:
    stage = nn.Linear(3, 3)
    y = stage(torch.ones(2, 3))
    split = SplitBackward(stage, first=True)
    assert split.input(0, y, torch.ones(2, 3), None) is None
    assert stage.weight.grad is None
    split.weight(0)
    split.finish()
    assert torch.equal(stage.weight.grad, torch.full((3, 3), 2.0))


def test_a_second_step_begins_anew() -> None:
    """Gradients that stand from before are added to, as a backward does."""
    stage = nn.Linear(3, 3)
    for _ in range(2):
        x = torch.ones(2, 3, requires_grad=True)
        split = SplitBackward(stage, first=False)
        split.input(0, stage(x), torch.ones(2, 3), x)
        split.weight(0)
        split.finish()
    assert torch.equal(stage.bias.grad, torch.full((3,), 4.0))
