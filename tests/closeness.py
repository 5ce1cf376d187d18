"""What "equal to float32 rounding" means."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def assert_close(ours: Tensor, theirs: Tensor, name: str, tolerance: float = 1e-5) -> None:
    """max |a - b| <= 1e-5 x max |b|, and b not all zero."""
    assert ours.shape == theirs.shape, f"{name}: {tuple(ours.shape)} and {tuple(theirs.shape)}"
    largest = theirs.abs().max().item()
    assert largest > 0, f"{name} is all zero"
    difference = (ours.double() - theirs.double()).abs().max().item()
    assert difference <= tolerance * largest, f"{name}: {difference:.3e} of {largest:.3e}"


def assert_all_close(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tolerance: float = 1e-5
) -> None:
    assert sorted(ours) == sorted(theirs)
    for name in ours:
        assert_close(ours[name], theirs[name], name, tolerance)


def gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in module.named_parameters()}
    return {name: grad for name, grad in found.items() if grad is not None}


def scatter(module: torch.nn.Module, seed: int = 0, scale: float = 0.15) -> None:
    """Moves every parameter off its initial value, so that ones and zeros hide nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
