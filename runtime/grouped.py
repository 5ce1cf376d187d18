"""Products of rows with one of many weights: which one, the row's place says."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .standalone import STANDALONE


def grouped_linear(
    x: Tensor, weight: Tensor, tokens_per_expert: Tensor, bias: Tensor | None = None
) -> Tensor:
    """y = x W^T for rows in groups, each with a W of its own: [R, in] -> [R, out].

    ``weight`` [E, out, in] and ``bias`` [E, out] in x's dtype. The first ``tokens_per_expert[0]``
    rows go with ``weight[0]``, those that follow with ``weight[1]``, and so on; the counts [E] are
    integers on x's device, and nothing waits for them. Groups may be empty. Rows beyond the sum of
    the counts are allowed; what comes of them, and their gradient, is undefined (it may be NaN).

    One operation, ``torch.nn.functional.grouped_mm`` where it runs: float32, bfloat16 and float16
    on CPU, bfloat16 on CUDA from compute capability 8.0 on, rows of a multiple of 16 bytes. Else a
    loop, which on CUDA waits for the counts. Saves x and the weight. No collective runs.
    Raises ValueError for shapes that do not fit.
    """
    if STANDALONE:
        groups = torch.split(x, tokens_per_expert.tolist())
        biases = [None] * len(groups) if bias is None else bias
        return torch.cat([F.linear(*group) for group in zip(groups, weight, biases, strict=True)])
    if x.dim() != 2 or weight.dim() != 3 or x.shape[1] != weight.shape[2]:
        raise ValueError(
            f"rows {list(x.shape)} and weights {list(weight.shape)} do not fit: they have to be "
            "[rows, in] and [groups, out, in]"
        )
    if tokens_per_expert.shape != weight.shape[:1]:
        raise ValueError(
            f"counts {list(tokens_per_expert.shape)} and {weight.shape[0]} weights do not fit: "
            "there has to be a count for each"
        )
    ends = tokens_per_expert.cumsum(0).to(torch.int32)
    y: Tensor = _product(x, weight, ends)
    if bias is None:
        return y
    # Rows of no group add a row of zeros: their undefined gradient must reach no group's bias.
    return y + F.pad(bias, (0, 0, 0, 1))[group_of_rows(ends, x.shape[0])]


def group_of_rows(ends: Tensor, rows: int) -> Tensor:
    """The number of each row's group, int64 [rows]; of rows beyond all groups that of no group."""
    places = torch.arange(rows, dtype=ends.dtype, device=ends.device)
    return torch.searchsorted(ends, places, right=True)


# Operations of our own, so that any dtype has a twin without values (for the meta device and for
# torch.compile): grouped_mm's refuses float32, which its kernel on CPU takes.


@torch.library.custom_op("specc::grouped_product", mutates_args=())
def _product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """[R, in] x [E, out, in] -> [R, out]."""
    if _has_kernel(x, weight.shape[1], weight.shape[2]):
        return F.grouped_mm(x.contiguous(), weight.transpose(1, 2), offs=ends)
    y = x.new_zeros(x.shape[0], weight.shape[1])
    for index, (start, end) in enumerate(_bounds(ends)):
        torch.mm(x[start:end], weight[index].t(), out=y[start:end])
    return y


@_product.register_fake
def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@torch.library.custom_op("specc::grouped_gradient", mutates_args=())
def _weight_gradient(dy: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """[R, out], [R, in] -> [E, out, in]: of each group, dy^T x."""
    if x.shape[0] and _has_kernel(x, dy.shape[1], x.shape[1]):
        return F.grouped_mm(dy.contiguous().t(), x.contiguous(), offs=ends)
    dw = x.new_zeros(ends.shape[0], dy.shape[1], x.shape[1])
    for index, (start, end) in enumerate(_bounds(ends) if x.shape[0] else []):
        torch.mm(dy[start:end].t(), x[start:end], out=dw[index])
    return dw


@_weight_gradient.register_fake
def _(dy: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(ends.shape[0], dy.shape[1], x.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, ends = ctx.saved_tensors
    dx = _product(dy, weight.transpose(1, 2), ends) if ctx.needs_input_grad[0] else None
    dw = _weight_gradient(dy, x, ends) if ctx.needs_input_grad[1] else None
    return dx, dw, None


_product.register_autograd(_backward, setup_context=_save)


def _has_kernel(x: Tensor, *sizes: int) -> bool:
    """Whether grouped_mm takes rows of these sizes."""
    if any(size * x.element_size() % 16 for size in sizes):
        return False
    if x.is_cuda:
        return x.dtype == torch.bfloat16 and torch.cuda.get_device_capability(x.device) >= (8, 0)
    return x.dtype in (torch.float32, torch.bfloat16, torch.float16)


def _bounds(ends: Tensor) -> list[tuple[int, int]]:
    last = ends.tolist()
    return list(zip([0, *last], last, strict=False))
