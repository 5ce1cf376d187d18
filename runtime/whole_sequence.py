"""Layers that read a sequence in order, under cp: all places of some groups for some of all."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from .collectives import all_to_all
from .context_parallel import in_order, places_for_heads
from .mesh import Mesh
from .positions import Positions

T = TypeVar("T", Tensor, Tensor | None)


def whole_sequence(x: Tensor, mesh: Mesh) -> Tensor:
    """This rank's places of all groups to all places of its groups: one all-to-all over cp.

    x [b, s, g, ..] -> [b, s * cp, g / cp, ..], the places in the sequence's order. Backward: the
    reverse exchange. Raises ValueError where cp does not divide the groups.
    """
    if mesh.cp.size == 1:
        return x
    if x.shape[2] % mesh.cp.size:
        raise ValueError(
            f"a layer that reads the sequence in order cuts its {x.shape[2]} groups of a rank over "
            f"cp={mesh.cp.size}, which does not divide them; use less cp or less tp"
        )
    parts = torch.unflatten(x, 2, (mesh.cp.size, -1)).movedim(2, 0)
    return in_order(all_to_all(parts.contiguous(), mesh.cp))


def own_places(y: Tensor, mesh: Mesh) -> Tensor:
    """The way back, one all-to-all: y [b, s * cp, g / cp, ..] -> [b, s, g, ..]."""
    if mesh.cp.size == 1:
        return y
    return places_for_heads(y, mesh.cp)


def own_groups(parameter: T, mesh: Mesh) -> T:
    """The part, along dimension 0, of a parameter that goes with ``whole_sequence``'s groups.

    Every rank of cp holds the whole (and gets a gradient for its part alone: they are summed).
    """
    if mesh.cp.size == 1:
        return parameter
    if parameter is None:
        return parameter
    return parameter.chunk(mesh.cp.size)[mesh.cp.rank]


def refuse_decoding(positions: Positions) -> None:
    """Raises NotImplementedError where tokens are read one after the other: states are not kept."""
    if positions.decoding is not None:
        raise NotImplementedError(
            "the states of layers that read the sequence in order are not kept between tokens"
        )
