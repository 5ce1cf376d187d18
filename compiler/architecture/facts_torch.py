"""What a class of torch was made with, where that is not its default: strides, a slope, a norm."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from .known import Facts

# Said by other facts, by the steps or by the weights; or of no consequence for what is computed.
_ELSEWHERE = {
    *("p", "eps", "approximate", "bias", "device", "dtype", "inplace", "elementwise_affine"),
    *("batch_first", "kdim", "vdim", "num_layers", "add_bias_kv"),
}


def torch_facts(module: nn.Module) -> Facts:
    """By the names of the constructor's parameters: {"negative_slope": 0.2}, {"dilation": (2,)}."""
    if not type(module).__module__.startswith("torch.nn.modules."):
        return {}
    found: Facts = {}
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty or name in _ELSEWHERE:
            continue
        value = getattr(module, name, default)
        if not _is_plain(value) or value == default or _each(value) == default:
            continue
        found[name] = value
    return found


def _each(value: Any) -> Any:
    """The number that a size has in each dimension."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(type(v) is int for v in value)
    return value is None or isinstance(value, (bool, int, float, str))
