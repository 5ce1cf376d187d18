"""Hugging Face transformers' Llama with Liger's fused kernels in its place."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from timing import Shape
from torch import Tensor

from . import hugging_face


def build(shape: Shape, device: str) -> Callable[[int, Tensor], Tensor]:
    """A training step on token ids [b, s + 1], which returns the loss."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama(fused_linear_cross_entropy=True, cross_entropy=False)
    return hugging_face.build(shape, device)


def versions() -> str:
    return f"{hugging_face.versions()}, liger-kernel {version('liger-kernel')}"
