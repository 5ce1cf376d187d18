"""Copies of a rank's shards on the CPU, so that training goes on while they are written."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor


class Copies:
    """One copy for each key, whose memory is used again by the next save.

    From a GPU they go to pinned memory, and the host does not wait: kernels that come later on the
    same stream come after the copies. ``wait`` is for whoever reads them.
    """

    def __init__(self) -> None:
        self._buffers: dict[Hashable, Tensor] = {}
        self._arrived: torch.cuda.Event | None = None

    def take(self, key: Hashable, tensor: Tensor) -> Tensor:
        """The tensor's copy on the CPU."""
        buffer = self._buffers.get(key)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[key] = buffer
        buffer.copy_(tensor, non_blocking=True)
        if tensor.is_cuda:
            if self._arrived is None:
                self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()
        return buffer

    def wait(self) -> None:
        """Until all copies that were taken are there."""
        if self._arrived is not None:
            self._arrived.synchronize()

    def clear(self) -> None:
        """Give the memory back."""
        self._buffers.clear()
