"""Draws from torch's generator that differ along an axis of the mesh.

The trainer seeds the generator alike on all tp ranks, since what they hold in common (a user's
`nn.Dropout` on hidden states) has to stay equal. What tp cuts needs draws of its own on each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .mesh import Axis


@contextmanager
def apart(axis: Axis, device: torch.device) -> Iterator[None]:
    """Inside, each rank of the axis draws its own numbers; after it, all draw alike again.

    One number is drawn alike before, so that each use gets new ones.
    """
    if axis.size == 1:
        yield
        return
    common = int(torch.randint(2**31, ()))  # on the CPU: nothing waits for the device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(common * axis.size + axis.rank)
        yield
