"""The kernels of other packages for convolution, state space and delta rule, where installed.

Decided once, by what is installed when this module is loaded, and said before a run's first step.
They run on a GPU alone, and not under ``torch.use_deterministic_algorithms``: some add up in no
fixed order.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .opaque import KERNELS, opaque

_WHERE = {  # what computes, and where it is imported from
    "causal-conv1d": ("causal_conv1d", "causal_conv1d_fn"),
    "mamba-ssm": ("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined"),
    "flash-linear-attention": ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
}
# Found, not imported: that takes seconds, and a compiled layer could not do it.
INSTALLED = {
    package: importlib.util.find_spec(module.partition(".")[0]) is not None
    for package, (module, _) in _WHERE.items()
}


def conv_kernel(device: torch.device) -> bool:
    """Whether ``CausalConv1d`` is computed by `causal-conv1d`."""
    return _used("causal-conv1d", device)


def ssd_kernel(device: torch.device) -> bool:
    """Whether ``ssd`` is computed by `mamba-ssm`."""
    return _used("mamba-ssm", device)


def delta_kernel(device: torch.device) -> bool:
    """Whether ``gated_delta_rule`` is computed by `flash-linear-attention`."""
    return _used("flash-linear-attention", device)


def told(device: torch.device) -> dict[str, str]:
    """For each of the three, what computes it."""
    return {
        what: package if _used(package, device) else "plain PyTorch"
        for what, package in zip(("convolution", "state space", "delta rule"), _WHERE, strict=True)
    }


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, starts: Tensor | None) -> Tensor:
    """``CausalConv1d`` of x [b, s, c] by weight [c, 1, kernel]."""
    weight = weight.squeeze(1).to(x.dtype)
    bias = None if bias is None else bias.to(x.dtype)
    return opaque("causal-conv1d", x, (x, weight, bias), _numbers(starts))


def ssd_by_kernel(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    starts: Tensor | None,
    chunk_size: int,
) -> Tensor:
    """``ssd``, with a and d of this rank's heads."""
    flat = (x.flatten(2, 3), dt.flatten(2), a, b, c, d)
    return opaque("mamba-ssm", flat[0], flat, _numbers(starts), (chunk_size,)).view_as(x)


def delta_rule_by_kernel(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, starts: Tensor | None
) -> Tensor:
    """``gated_delta_rule``, with q and k of length 1."""
    q, k = (t.to(v.dtype).repeat_interleave(v.shape[3], 2) for t in (q, k))
    flat = (q, k, v.flatten(2, 3), log_decay.flatten(2), beta.flatten(2).to(v.dtype))
    return opaque("flash-linear-attention", flat[2], flat, starts).view_as(v)


def _used(package: str, device: torch.device) -> bool:
    return (
        INSTALLED[package]
        and device.type == "cuda"
        and not torch.are_deterministic_algorithms_enabled()
    )


@functools.cache
def _function(package: str) -> Callable[..., Any]:
    module, name = _WHERE[package]
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise ImportError(
            f"{package} is installed and cannot be used ({error}); repair it, or uninstall it to "
            "compute the same in plain PyTorch"
        ) from error
    return found


def _causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, numbers: Tensor | None) -> Tensor:
    # Seen as [b, c, s], channels lie closest: that is what it wants where documents are told apart.
    x = x.contiguous().transpose(1, 2)
    y: Tensor = _function("causal-conv1d")(x, weight, bias, seq_idx=numbers)
    return y.transpose(1, 2)


def _state_space(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    numbers: Tensor | None,
    chunk_size: int,
) -> Tensor:
    y: Tensor = _function("mamba-ssm")(x, dt, a, b, c, chunk_size, D=d, seq_idx=numbers)
    return y


def _delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, starts: Tensor | None
) -> Tensor:
    kernel = _function("flash-linear-attention")
    if starts is None:
        y: Tensor = kernel(q, k, v, log_decay, beta)[0]
        return y
    # All sequences as one; its documents are told by where they begin.
    rows = torch.arange(starts.shape[0], device=starts.device).unsqueeze(1)
    first = (rows * starts.shape[1] + starts).flatten()
    ends = torch.unique_consecutive(first)  # waits for the device: the kernel asks for their number
    ends = torch.cat((ends, ends.new_full((1,), first.shape[0])))
    one = [t.flatten(0, 1).unsqueeze(0) for t in (q, k, v, log_decay, beta)]
    joined: Tensor = kernel(*one, cu_seqlens=ends)[0]
    return joined.view_as(v)


KERNELS["causal-conv1d"] = _causal_conv
KERNELS["mamba-ssm"] = _state_space
KERNELS["flash-linear-attention"] = _delta_rule


def _numbers(starts: Tensor | None) -> Tensor | None:
    """The number of each place's document, int32 [b, s]."""
    if starts is None:
        return None
    first = starts == torch.arange(starts.shape[1], device=starts.device)
    return first.cumsum(1).sub(1).to(torch.int32)
