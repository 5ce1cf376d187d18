"""Where the GPU's time in a training step goes: by kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

# The first kind that has a word of the kernel's name takes it.
KINDS = {
    "collectives": ("nccl",),
    "attention": ("fmha", "flash", "sdpa", "cudnn"),
    "matrix products": ("gemm", "nvjet", "cutlass", "cublas", "splitk"),
    "AdamW": ("adam", "_sqrt_"),  # the compiled one is the only kernel that takes a square root
    "gradient norm and clip": ("lpnorm", "multi_tensor", "foreach"),
    "fused by the compiler": ("triton",),
    "copies": ("memcpy", "memset", "copy", "cat", "split", "chunk"),
}


@dataclass(frozen=True)
class Breakdown:
    """Milliseconds of one step: by kind, by kernel, and those in which the GPU ran nothing."""

    kinds: dict[str, float]
    kernels: dict[str, float]
    idle: float

    def lines(self, longest: int = 30) -> list[str]:
        """For people: the kinds, the longest first, then the longest kernels."""
        kinds = sorted(self.kinds.items(), key=lambda item: -item[1])
        total = sum(self.kinds.values()) + self.idle
        found = [f"{ms:8.1f} ms {ms / total:6.1%}  {kind}" for kind, ms in kinds]
        found.append(f"{self.idle:8.1f} ms {self.idle / total:6.1%}  the GPU idle")
        kernels = sorted(self.kernels.items(), key=lambda item: -item[1])[:longest]
        return found + [f"{ms:8.2f} ms  {name[:110]}" for name, ms in kernels]


def breakdown(step: Callable[[], object], *, steps: int = 2) -> Breakdown:
    """Profiles ``steps`` calls, one after the other without waiting, on the current GPU."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    spans: list[tuple[float, float]] = []
    kernels: dict[str, float] = {}
    for event in seen.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        span = event.time_range
        spans.append((span.start, span.end))
        kernels[event.name] = kernels.get(event.name, 0.0) + (span.end - span.start) / 1e3 / steps
    kinds: dict[str, float] = {}
    for name, ms in kernels.items():
        kind = kind_of(name)
        kinds[kind] = kinds.get(kind, 0.0) + ms
    return Breakdown(kinds, kernels, idle_microseconds(spans) / 1e3 / steps)


def kind_of(kernel: str) -> str:
    name = kernel.lower()
    return next((kind for kind, words in KINDS.items() if any(w in name for w in words)), "other")


def idle_microseconds(spans: list[tuple[float, float]]) -> float:
    """The time between the first start and the last end that no span covers."""
    idle, busy_until = 0.0, None
    for start, end in sorted(spans):
        if busy_until is not None and start > busy_until:
            idle += start - busy_until
        busy_until = end if busy_until is None else max(busy_until, end)
    return idle
