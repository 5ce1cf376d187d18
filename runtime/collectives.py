"""Collectives with a stated backward: of each, the true adjoint.

The global loss is the sum of all ranks' local losses, so the gradient of a rank's input is the sum
of what every rank's output sends back: of all-reduce, all-reduce; of gather, reduce-scatter.

They stand on ``torch.ops._c10d_functional``: ordinary ``torch.distributed`` calls inside a compiled
``autograd.Function`` give wrong gradients on torch 2.11, silently, and the public names of the
functional ones changed between 2.11 and 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from .mesh import Axis

_ops = torch.ops._c10d_functional


def wait(x: Tensor) -> Tensor:
    """The result of a collective that was started."""
    return cast(Tensor, _ops.wait_tensor(x))


def start_all_reduce(x: Tensor, axis: Axis, op: str = "sum") -> Tensor:
    """Starts an all-reduce (no autograd); ``wait`` gives the result, a new tensor."""
    return cast(Tensor, _ops.all_reduce(x.contiguous(), op, axis.group_name))


def start_all_gather(x: Tensor, axis: Axis) -> Tensor:
    """Starts a gather along dimension 0 (no autograd): [n, ...] -> [axis.size * n, ...]."""
    return cast(Tensor, _ops.all_gather_into_tensor(x.contiguous(), axis.size, axis.group_name))


def start_reduce_scatter(x: Tensor, axis: Axis) -> Tensor:
    """Starts a reduce-scatter along dimension 0 (no autograd): [axis.size * n, ...] -> [n, ...]."""
    return cast(
        Tensor, _ops.reduce_scatter_tensor(x.contiguous(), "sum", axis.size, axis.group_name)
    )


def start_all_to_all(x: Tensor, axis: Axis, received: Sequence[int], sent: Sequence[int]) -> Tensor:
    """Starts an exchange of rows (no autograd): ``sent[r]`` of dimension 0 go to rank r."""
    rows = _ops.all_to_all_single(x.contiguous(), list(received), list(sent), axis.group_name)
    return cast(Tensor, rows)


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return wait(start_all_reduce(x, axis))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return wait(start_all_reduce(grads[0], ctx.axis)), None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return wait(start_all_gather(x, axis))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return wait(start_reduce_scatter(grads[0], ctx.axis)), None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return wait(start_reduce_scatter(x, axis))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return wait(start_all_gather(grads[0], ctx.axis)), None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, received: list[int], sent: list[int]) -> Tensor:
        ctx.axis, ctx.received, ctx.sent = axis, received, sent
        return wait(start_all_to_all(x, axis, received, sent))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        dx = wait(start_all_to_all(grads[0], ctx.axis, ctx.sent, ctx.received))
        return dx, None, None, None


def all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """The sum over the axis, on every rank. Backward: all-reduce."""
    if axis.size == 1:
        return x
    y: Tensor = _AllReduce.apply(x, axis)  # type: ignore[no-untyped-call]
    return y


def all_reduce_max(x: Tensor, axis: Axis) -> Tensor:
    """The elementwise maximum over the axis, on every rank. Has no backward: detached."""
    if axis.size == 1:
        return x.detach()
    return wait(start_all_reduce(x.detach(), axis, "max"))


def all_gather(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """Every rank's part, one after the other along ``dim``. Backward: reduce-scatter.

    [.., n, ..] -> [.., axis.size * n, ..]
    """
    if axis.size == 1:
        return x
    y: Tensor = _AllGather.apply(x.movedim(dim, 0), axis)  # type: ignore[no-untyped-call]
    return y.movedim(0, dim)


def reduce_scatter(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """This rank's part, along ``dim``, of the sum over the axis. Backward: all-gather.

    [.., axis.size * n, ..] -> [.., n, ..]. Raises ValueError where the axis does not divide.
    """
    if axis.size == 1:
        return x
    if x.shape[dim] % axis.size:
        raise ValueError(
            f"dimension {dim} has {x.shape[dim]} entries, which the {axis.size} ranks of "
            f"{axis.name} do not divide"
        )
    y: Tensor = _ReduceScatter.apply(x.movedim(dim, 0), axis)  # type: ignore[no-untyped-call]
    return y.movedim(0, dim)


def all_to_all(
    x: Tensor,
    axis: Axis,
    received: Sequence[int] | None = None,
    sent: Sequence[int] | None = None,
) -> Tensor:
    """Sends block r of dimension 0 to rank r; returns what came, ordered by sender.

    ``sent[r]`` rows go to rank r and ``received[r]`` rows come from it; left out, blocks are equal.
    Backward: the reverse exchange.
    """
    if axis.size == 1:
        return x
    if sent is None or received is None:
        if x.shape[0] % axis.size:
            raise ValueError(
                f"{x.shape[0]} rows cannot go in equal blocks to the {axis.size} ranks of "
                f"{axis.name}"
            )
        received = sent = [x.shape[0] // axis.size] * axis.size
    y: Tensor = _AllToAll.apply(x, axis, list(received), list(sent))  # type: ignore[no-untyped-call]
    return y
