"""Linear layers, cut over tp or whole on each of its ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    start_all_gather,
    start_reduce_scatter,
    wait,
)
from .mesh import Axis, Mesh
from .parameters import Constant, Normal, ParameterRecord, axis_cut, declare
from .partial_product import partial_product
from .standalone import STANDALONE


class Linear(nn.Module):
    """y = x W^T, whole on every rank: for projections too narrow to be cut.

    Float32 ``weight`` [out, in], cast to x's dtype. No collective runs: each rank computes the
    places that it has, which under sequence parallel are its own, else the same on all ranks of tp.
    Its gradient is partial on each of them either way (what follows is cut) and is summed at the
    step's end, as a norm's is. Saved: x, and the weight as in ``ColumnParallelLinear``. The weight
    has no storage until ``materialize``.
    """

    def __init__(self, in_features: int, out_features: int, *, init_std: float = 0.02) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = local_parameter(out_features, in_features)
        declare(
            self, "weight", ParameterRecord((out_features, in_features), law=Normal(init_std))
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, in] -> [b, t, out]."""
        return F.linear(x, self.weight.to(x.dtype))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class ColumnParallelLinear(nn.Module):
    """y = x W^T, plus a bias where there is one: float32 weights, cast to x's dtype.

    The rows of W (the output features) are cut over tp.

    =============  ==============================  ==========================================
    tp > 1         without sequence parallel       with sequence parallel
    =============  ==============================  ==========================================
    x              [b, s, in], whole               [b, s / tp, in]
    y              [b, s, out / tp]                [b, s, out / tp]
    forward        no collective                   all-gather of x over positions
    backward       none: x's gradient is partial   all-gather of x (overlaps), reduce-scatter
                   (its producer sums it)          of x's gradient
    saved          x                               x, this rank's positions only
    =============  ==============================  ==========================================

    Beside x the weight is saved: no copy under FSDP or in float32, else (eager) its cast.
    ``gather_output`` adds an all-gather of y (backward: reduce-scatter): y is [b, s, out].
    ``unit``: rows are cut only between units of that many, so that a head stays whole.
    ``pad``: rows need not divide; each rank has ceil(out / tp), the last ones padding of zeros that
    exist in memory only. ``weight`` is [out / tp, in], ``bias`` [out / tp]; both float32, cast to
    x's dtype. They have no storage until ``materialize``.

    Raises ValueError where the rows cannot be cut.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        mesh: Mesh,
        *,
        bias: bool = False,
        gather_output: bool = False,
        unit: int = 1,
        pad: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        if out_features % unit:
            raise ValueError(
                f"{out_features} output features are not a whole number of units of {unit}"
            )
        if not pad and out_features // unit % mesh.tp.size:
            of = "" if unit == 1 else f" ({out_features} features in units of {unit})"
            raise ValueError(
                f"tp={mesh.tp.size} does not divide {out_features // unit} output "
                f"{'features' if unit == 1 else 'units'}{of}"
            )
        if pad and unit != 1:
            raise ValueError(f"pad=True cuts anywhere, so it cannot keep units of {unit} whole")
        self.in_features = in_features
        self.out_features = out_features
        self.gather_output = gather_output
        self.mesh = mesh
        rows = axis_cut(out_features, mesh.tp).size
        self.weight = local_parameter(rows, in_features)
        declare(
            self,
            "weight",
            ParameterRecord((out_features, in_features), dim=0, law=Normal(init_std)),
        )
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = local_parameter(rows)
            declare(self, "bias", ParameterRecord((out_features,), dim=0, law=Constant(0.0)))

    def forward(self, x: Tensor) -> Tensor:
        """[b, t, in] -> [b, s, out / tp], or [b, s, out] with ``gather_output``."""
        weight, bias = _cast(self.weight, x), _cast(self.bias, x)
        if self.mesh.tp.size == 1:
            return F.linear(x, weight, bias)
        if self.mesh.sequence_parallel:
            y = _gathered_linear(x, weight, bias, self.mesh.tp)
        else:
            y = F.linear(x, weight, bias)
        if not self.gather_output:
            return y
        return all_gather(y, -1, self.mesh.tp).narrow(-1, 0, self.out_features)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class RowParallelLinear(nn.Module):
    """y = x W^T, plus a bias where there is one: float32 weights, cast to x's dtype.

    The columns of W (the input features) are cut over tp.

    =============  ==============================  ==========================================
    tp > 1         without sequence parallel       with sequence parallel
    =============  ==============================  ==========================================
    x              [b, s, in / tp]                 [b, s, in / tp]
    y              [b, s, out], whole              [b, s / tp, out]
    forward        all-reduce of y                 reduce-scatter of y over positions
    backward       all-reduce of y's gradient      all-gather of y's gradient
    saved          x                               x
    =============  ==============================  ==========================================

    Beside x the weight is saved, as in ``ColumnParallelLinear``.
    ``weight`` is [out, in / tp]; ``bias`` [out] is whole on every rank and added once, after the
    sum. Both float32, cast to x's dtype. They have no storage until ``materialize``.

    Raises ValueError where tp does not divide ``in_features``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        mesh: Mesh,
        *,
        bias: bool = False,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        if in_features % mesh.tp.size:
            raise ValueError(f"tp={mesh.tp.size} does not divide {in_features} input features")
        self.in_features = in_features
        self.out_features = out_features
        self.mesh = mesh
        self.weight = local_parameter(out_features, in_features // mesh.tp.size)
        declare(
            self,
            "weight",
            ParameterRecord((out_features, in_features), dim=1, law=Normal(init_std)),
        )
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = local_parameter(out_features)
            declare(self, "bias", ParameterRecord((out_features,), law=Constant(0.0)))

    def forward(self, x: Tensor) -> Tensor:
        """[b, s, in / tp] -> [b, t, out]."""
        weight, bias = _cast(self.weight, x), _cast(self.bias, x)
        if self.mesh.tp.size == 1:
            return F.linear(x, weight, bias)
        if self.mesh.sequence_parallel:
            # Positions first, so that the scatter along them is one collective without a copy.
            y = reduce_scatter(partial_product(x.transpose(0, 1), weight), 0, self.mesh.tp)
            y = y.transpose(0, 1)
        else:
            y = all_reduce(partial_product(x, weight), self.mesh.tp)
        return y if bias is None else y + bias

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def gather_positions(x: Tensor, mesh: Mesh) -> Tensor:
    """x [b, t, ..] of this rank's places between the layers -> [b, s, ..], those that it attends.

    Under sequence parallel an all-gather over tp (backward: reduce-scatter), else nothing: what the
    ranks send back are their shares of one gradient either way.
    """
    if mesh.tp.size == 1:
        return x
    if not mesh.sequence_parallel:
        return x
    return all_gather(x, 1, mesh.tp)


def local_parameter(*shape: int) -> nn.Parameter:
    """A float32 parameter without storage: ``materialize`` gives it storage and its value."""
    if STANDALONE:
        return nn.Parameter(torch.empty(*shape))
    return nn.Parameter(torch.empty(shape, dtype=torch.float32, device="meta"))


def _cast(parameter: nn.Parameter | None, x: Tensor) -> Any:
    return None if parameter is None else parameter.to(x.dtype)


class _GatheredLinear(torch.autograd.Function):
    """Linear on positions gathered over tp, [t * b, in] -> [t * tp * b, out], saving the shard.

    Saving the gathered x instead would cost tp times the memory; its second gather, in the
    backward, runs while the gradient of x is computed.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, axis: Axis) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.axis = axis
        return F.linear(wait(start_all_gather(x, axis)), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        (dy,) = grads
        x, weight = ctx.saved_tensors
        gathered = start_all_gather(x, ctx.axis)  # in flight
        dx = start_reduce_scatter(dy @ weight, ctx.axis)  # in flight while dW is computed
        dw = dy.t() @ wait(gathered)
        db = dy.sum(0) if ctx.needs_input_grad[2] else None
        return wait(dx), dw, db, None


def _gathered_linear(x: Tensor, weight: Tensor, bias: Tensor | None, axis: Axis) -> Tensor:
    """[b, t, in] -> [b, t * tp, out]; positions go first inside, so that a gather is one piece."""
    b, t, _ = x.shape
    flat = x.transpose(0, 1).reshape(t * b, -1)
    y: Tensor = _GatheredLinear.apply(flat, weight, bias, axis)  # type: ignore[no-untyped-call]
    return y.view(t * axis.size, b, -1).transpose(0, 1)
