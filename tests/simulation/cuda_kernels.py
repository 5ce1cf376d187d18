"""A GPU's kernels where a CPU's would keep something else: fake CPU tensors stand for a GPU's.

On CPU torch takes ``F.rms_norm`` apart and keeps float32 copies, layer norm's statistics are in the
input's dtype, and attention over cp has its scores in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from specc.runtime.attention_choice import choose


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, statistics: int
    ) -> Tensor:
        kept = [x.new_empty((*x.shape[:-1], 1), dtype=torch.float32) for _ in range(statistics)]
        ctx.save_for_backward(x, weight, *kept)
        ctx.bias = bias is not None
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, weight, *_ = ctx.saved_tensors
        bias = torch.empty_like(weight) if ctx.bias else None
        return torch.empty_like(x), torch.empty_like(weight), bias, None


def _rms_norm(x: Tensor, shape: Any, weight: Tensor, eps: float) -> Any:
    return _Norm.apply(x, weight, None, 1)


def _layer_norm(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Any:
    return _Norm.apply(x, weight, bias, 2)


def _choose(device: torch.device, *args: Any, **options: Any) -> str:
    return choose(torch.device("cuda"), *args, **options)


@contextmanager
def as_on_cuda() -> Iterator[None]:
    attention = sys.modules["specc.runtime.attention"]  # the package has a function of the name
    with (
        patch.object(F, "rms_norm", _rms_norm),
        patch.object(F, "layer_norm", _layer_norm),
        patch.object(attention, "choose", _choose),
    ):
        yield
