"""Draws that follow from where an element stands in the whole run: what layers with such noise have
in common.

A key of (seed, step, module name) and the number of the micro-batch's first sequence are kept on
the layer; with them every place of every sequence has a key of its own.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import torch
from torch import Tensor, nn

from .draws import mix64
from .micro_batch import Turn


class Placed(Protocol):
    """A layer that ``register_place`` was called on."""

    key: Tensor
    first_sequence: Tensor
    has_step: bool


def register_place(layer: nn.Module) -> None:
    """Gives a layer the state that ``set_place`` fills: no part of its state dict."""
    # Tensors, so that a compiled forward reads the new step's values without a new trace.
    for name in ("key", "first_sequence"):
        layer.register_buffer(name, torch.zeros((), dtype=torch.int64), persistent=False)


def set_place(layer: Placed, name: str, turn: Turn) -> None:
    """Takes the place of the next forward in the run; ``name`` parts the draws of layers."""
    text = f"{turn.seed}/{turn.step}/{name}".encode()
    digest = hashlib.blake2b(text, digest_size=8).digest()
    # fill_ hands the number to the device as an argument: no copy to wait for.
    layer.key.fill_(int.from_bytes(digest, "little", signed=True))
    layer.first_sequence.fill_(turn.first_sequence)
    layer.has_step = True


def place_keys(layer: Placed, sequences: int, places: Tensor) -> Tensor:
    """An int64 key for each place [t] of each of so many sequences: [b, t, 1]."""
    numbers = layer.first_sequence + torch.arange(sequences, device=places.device)
    return mix64(mix64(layer.key ^ numbers)[:, None] ^ places)[..., None]
