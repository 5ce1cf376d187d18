"""Products whose results are parts of a sum over ranks, told apart from those that are whole.

Recompute keeps the result of the reduction that follows instead: [b, t, h] and not tp times that.
"""

from __future__ import annotations

import threading

import torch
import torch.nn.functional as F
from torch import Tensor

_now = threading.local()  # a backward recomputes in a thread of its own


def partial_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T, to be summed over ranks next."""
    if torch.compiler.is_compiling():
        return F.linear(x, weight)  # nothing that the backward reads, so it is kept in no case
    _now.inside = True
    try:
        return F.linear(x, weight)
    finally:
        _now.inside = False


def inside_partial_product() -> bool:
    """Whether the operation that runs now is a part of one."""
    return getattr(_now, "inside", False)
