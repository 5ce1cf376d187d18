"""What a GPU's fused kernels keep for their backward, on the meta device.

On meta torch takes norms, dropout and attention apart, and keeps copies that no GPU keeps. Inside
`as_on_gpu` each of them is one step that keeps what the kernel for bf16 and fp16 keeps:

| step | kept beside its weights |
|---|---|
| `rms_norm` | x, and 1 / root of each place in float32 |
| `layer_norm` | x, mean and 1 / deviation of each place in float32 |
| `dropout` | the mask, one byte each |
| `scaled_dot_product_attention` | q, k, v, the output, its float32 log-sum-exp [b, n, s]; a mask |

`specc.runtime.attention` is told that it runs on a GPU, and takes flash attention where it would
there; what it computes from matrix products there (under a soft cap), it does here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from specc.runtime.attention_choice import choose


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Inside, a forward on the meta device keeps for its backward what it keeps on a GPU."""
    attention = sys.modules["specc.runtime.attention"]  # the package has a function of the name
    vars(attention)["choose"] = _choose
    try:
        with _Kernels():
            yield
    finally:
        vars(attention)["choose"] = choose


def _choose(device: torch.device, *args: Any, **options: Any) -> str:
    return choose(torch.device("cuda"), *args, **options)


class _Kernels(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _STEPS.get(func, func)(*args, **(kwargs or {}))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, statistics: int
    ) -> Tensor:
        kept = [x.new_empty((*x.shape[:-1], 1), dtype=torch.float32) for _ in range(statistics)]
        ctx.save_for_backward(x, weight, *kept)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("only what a forward keeps is measured")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[.., n, s, d] each; the result lies in memory as the kernels leave it, [.., s, n, d]."""
        *batch, heads, places, _ = q.shape
        y = q.new_empty((*batch, places, heads, v.shape[-1])).transpose(-2, -3)
        lse = q.new_empty((*batch, heads, places), dtype=torch.float32)
        if mask is not None and mask.dtype == torch.bool:
            mask = mask.to(q.dtype)
        ctx.save_for_backward(q, k, v, mask, y, lse)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("only what a forward keeps is measured")


def _rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Any:
    return _Norm.apply(input, weight, None, 1)  # type: ignore[no-untyped-call]


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return _Norm.apply(input, weight, bias, 2)  # type: ignore[no-untyped-call]


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if query.dim() < 3:  # without heads
        return _attention(query[None], key[None], value[None], attn_mask)[0]
    return _Attention.apply(query, key, value, attn_mask)  # type: ignore[no-untyped-call]


_STEPS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.dropout: _dropout,
    torch.dropout: _dropout,
    F.scaled_dot_product_attention: _attention,
}
