"""What one rank of a simulated job does: its collectives, and its memory after every operation.

Tensors are fake: they have shapes and storages, and no memory. A storage is live from the first
operation that returns it to its end, or to its ``resize_(0)``, which is how FSDP frees parameters.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from specc.runtime.communication import Collective

_COLLECT_EVERY = 400  # operations: fake tensors that are recomputed stand in reference cycles

# Of each operation that communicates: its kind, and which argument (-1: the result) is the larger
# side of what it moves.
_MOVES = {
    "_c10d_functional.all_reduce.default": ("all_reduce", 0),
    "_c10d_functional.all_gather_into_tensor.default": ("all_gather", -1),
    "_c10d_functional.reduce_scatter_tensor.default": ("reduce_scatter", 0),
    "_c10d_functional.all_to_all_single.default": ("all_to_all", 0),
    "c10d.allreduce_.default": ("all_reduce", 0),
    "c10d._allgather_base_.default": ("all_gather", 0),
    "c10d._reduce_scatter_base_.default": ("reduce_scatter", 1),
    "c10d.send.default": ("send", 0),
}
# Kernels that need memory inside, and how much: that of their argument.
_INSIDE = ("aten.logsumexp.default",)
_WAIT = "_c10d_functional.wait_tensor.default"


@dataclass(frozen=True)
class Place:
    """Where in a step something happened; ``layer`` None outside the layers."""

    phase: str
    layer: int | None = None


class Tracker(TorchDispatchMode):
    """Counts while it is entered. ``place`` is set by whoever drives the step.

    ``axes``: the axis that the name of a process group stands for.
    """

    def __init__(self, axes: Mapping[str, str]) -> None:
        super().__init__()
        self.axes = axes
        self.place = Place("build")
        self.seen: list[tuple[Place, Collective]] = []
        self.operations = 0
        self.now = 0  # bytes held
        self.peaks: dict[Place, int] = {}
        self.watched_peak = 0  # what is held is noted when this is reached
        self.at_peak: Counter[tuple[Place, str]] = Counter()
        self._bytes: dict[int, int] = {}
        self._maker: dict[int, tuple[Place, str]] = {}
        self._sharding: set[int] = set()  # FSDP's whole parameters and its gather buffers
        self._trying = False
        # A DTensor tries an operation out on fake tensors of its global size.
        self._try: Callable[..., Any] = ShardingPropagator._propagate_tensor_meta_non_cached
        self._resize: Callable[..., Any] = torch.UntypedStorage.resize_

    def __enter__(self) -> Tracker:
        gc.collect()
        gc.freeze()  # so that the many collections look at the simulation only
        tracker = self

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = tracker._resize(storage, size)
            tracker._hold(storage, size, "resize_")
            tracker._sharding.add(storage._cdata)
            return result

        def tried(*args: Any) -> Any:
            tracker._trying = True
            try:
                return tracker._try(*args)
            finally:
                tracker._trying = False

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign]
        ShardingPropagator._propagate_tensor_meta_non_cached = tried
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        ShardingPropagator._propagate_tensor_meta_non_cached = self._try
        gc.unfreeze()
        super().__exit__(*error)

    def held(self, *, sharding: bool = True) -> int:
        """Bytes held now, with or without FSDP's whole parameters and gather buffers."""
        gc.collect()
        return self.now - (0 if sharding else sum(self._bytes.get(k, 0) for k in self._sharding))

    def restart(self) -> None:
        """Begin to count anew; what is held stays."""
        self.seen.clear()
        self.at_peak.clear()
        self.operations = 0
        self.peaks.clear()
        gc.collect()

    @property
    def peak(self) -> int:
        return max(self.peaks.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local tensors come next: itself it holds no memory
        result = func(*args, **(kwargs or {}))
        if self._trying:
            return result
        self.operations += 1
        if self.operations % _COLLECT_EVERY == 0:
            gc.collect()
        name = str(func)
        if name in _INSIDE:
            self._reach(self.now + args[0].nbytes)
        if name == _WAIT:  # it returns its argument; a fake one returns another tensor
            self._hold(args[0].untyped_storage(), 0, name)
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            self._hold(storage, storage.nbytes(), name)
            if name.startswith("fsdp."):
                self._sharding.add(storage._cdata)
        if name in _MOVES:
            kind, side = _MOVES[name]
            moved = sum(t.nbytes for t in _tensors(result if side < 0 else args[side]))
            self.seen.append((self.place, Collective(kind, self._axis(args), moved)))
        elif name.startswith(("c10d.", "_c10d_functional.")) and name != _WAIT:
            raise NotImplementedError(f"{name} may move bytes, and they are not counted")
        return result

    def _hold(self, storage: torch.UntypedStorage, size: int, name: str) -> None:
        key = storage._cdata
        if key not in self._bytes:
            weakref.finalize(storage, self._drop, key)
            self._bytes[key] = 0
            self._maker[key] = (self.place, name)
        self.now += size - self._bytes[key]
        self._bytes[key] = size
        self._reach(self.now)

    def _reach(self, size: int) -> None:
        if size > self.peaks.get(self.place, 0):
            self.peaks[self.place] = size
            if size == self.watched_peak:
                for key, held in self._bytes.items():
                    self.at_peak[self._maker[key]] += held

    def _drop(self, key: int) -> None:
        self.now -= self._bytes.pop(key)
        del self._maker[key]
        self._sharding.discard(key)

    def _axis(self, args: tuple[Any, ...]) -> str:
        for arg in args:
            if isinstance(arg, str) and arg in self.axes:
                return self.axes[arg]
            if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
                return self.axes[torch.distributed.ProcessGroup.unbox(arg).group_name]
        raise LookupError(f"no process group of the mesh among {args}")


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_iter(value) if isinstance(x, Tensor)]
