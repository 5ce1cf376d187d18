"""State space, delta rule and convolution, in chunks, equal their recurrences place by place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import recurrences
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specc.runtime import CausalConv1d, Mesh, Positions, gated_delta_rule, ssd
from specc.runtime.decoding import Decoding

# Sums of up to 128 products in float32, in another order; a wrong term is far off.
CLOSE = 5e-6

ALONE = Mesh.single()
lengths = st.sampled_from([1, 2, 7, 16, 37])
documents = st.none() | st.lists(st.integers(1, 36), max_size=4)


def positions(length: int, begins: list[int] | None) -> tuple[Positions, Tensor | None]:
    starts = None if begins is None else recurrences.starts_of(length, begins)
    return Positions.of(torch.zeros(2, length, dtype=torch.int64), ALONE, starts), starts


def compare(ours: Callable[..., Tensor], plain: Callable[..., Tensor], args: Sequence[Any]) -> None:
    """The result and the gradient by every argument: ours in float32, the plain one in float64."""
    found: list[list[Tensor]] = []
    for run, dtype in ((ours, torch.float32), (plain, torch.float64)):
        own = [arg.to(dtype).requires_grad_() for arg in args]
        y = run(*own)
        weights = torch.linspace(-1, 1, y.numel(), dtype=dtype).sin().view_as(y)
        grads = torch.autograd.grad((y * weights).sum(), own, allow_unused=True)
        found.append(
            [y, *(torch.zeros_like(x) if g is None else g for x, g in zip(own, grads, strict=True))]
        )
    for got, expected in zip(*found, strict=True):
        error = (got.double() - expected).abs().max()
        assert error <= CLOSE * max(expected.abs().max().item(), 1e-3), error


@settings(deadline=None, max_examples=12)
@given(lengths, documents, st.sampled_from([4, 128]), st.integers(0, 99))
def test_state_space(length: int, begins: list[int] | None, chunk: int, seed: int) -> None:
    torch.manual_seed(seed)
    where, starts = positions(length, begins)
    args = [
        torch.randn(2, length, 2, 3, 4),
        torch.rand(2, length, 2, 3) * 2,
        -torch.rand(6) * 3,
        torch.randn(2, length, 2, 5),
        torch.randn(2, length, 2, 5),
        torch.randn(6),
    ]
    compare(
        lambda *own: ssd(*own, where, ALONE, chunk_size=chunk),
        lambda *own: recurrences.state_space(*own, starts),
        args,
    )


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([1, 7, 37, 70]), documents, st.integers(0, 99))
def test_delta_rule(length: int, begins: list[int] | None, seed: int) -> None:
    torch.manual_seed(seed)
    where, starts = positions(length, begins)
    args = [
        torch.randn(2, length, 2, 4),
        torch.randn(2, length, 2, 4),
        torch.randn(2, length, 2, 3, 5),
        -torch.rand(2, length, 2, 3) * 2,
        torch.rand(2, length, 2, 3),
    ]
    compare(
        lambda *own: gated_delta_rule(*own, where),
        lambda *own: recurrences.delta_rule(*own, starts),
        args,
    )


@settings(deadline=None, max_examples=12)
@given(lengths, documents, st.booleans(), st.integers(0, 99))
def test_convolution(length: int, begins: list[int] | None, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    where, starts = positions(length, begins)
    layer = CausalConv1d(2, 6, 4, ALONE, bias=bias)

    def ours(x: Tensor, weight: Tensor, *offset: Tensor) -> Tensor:
        given = {"weight": weight} | ({"bias": offset[0]} if bias else {})
        return torch.func.functional_call(layer, given, (x.unflatten(2, (2, 3)), where)).flatten(2)

    args = [torch.randn(2, length, 6), torch.randn(6, 1, 4)] + [torch.randn(6)] * bias
    compare(
        ours,
        lambda x, weight, *offset: recurrences.convolution(
            x, weight, offset[0] if bias else None, starts
        ),
        args,
    )


def test_states_are_not_kept_between_tokens() -> None:
    layer, decoding = CausalConv1d(1, 2, 3, ALONE), Decoding()
    ids = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(NotImplementedError, match="not kept"), decoding.reading(4):
        layer(torch.randn(1, 4, 1, 2), Positions.of(ids, ALONE))
