"""Which places of the sequence a rank works on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .mesh import Mesh


@dataclass(frozen=True, eq=False)
class Positions:
    """The global position ids of what this rank holds, the same for every sequence of the batch.

    ``ids`` [s] are the positions that its attention sees, ``local_ids`` [t] those that it holds
    between the layers (a part of ``ids`` under sequence parallel, else all of them). The ids grow
    along the sequence: a causal attention lets a place see the places before it.

    Raises ValueError where either is not one row of integers.
    """

    ids: Tensor
    local_ids: Tensor

    def __post_init__(self) -> None:
        for name, ids in (("ids", self.ids), ("local_ids", self.local_ids)):
            if ids.dim() != 1 or ids.is_floating_point():
                raise ValueError(
                    f"Positions.{name} has shape {list(ids.shape)} and dtype {ids.dtype}; it has "
                    "to be one row of integers, one for each place of the sequence"
                )

    @staticmethod
    def of(input_ids: Tensor, mesh: Mesh) -> Positions:
        """Positions 0 to s - 1 for tokens [b, s].

        Raises ValueError where sequence parallel cannot cut s into tp equal parts.
        """
        return _counted(input_ids.shape[1], input_ids.device, mesh)

    @staticmethod
    def of_hidden(x: Tensor, mesh: Mesh) -> Positions:
        """Positions for activations [b, t, h] as they stand between the layers."""
        return _counted(_whole_length(x.shape[1], mesh), x.device, mesh)


def _counted(length: int, device: torch.device, mesh: Mesh) -> Positions:
    ids = torch.arange(length, device=device)
    return Positions(ids, _between_layers(ids, mesh))


def _between_layers(ids: Tensor, mesh: Mesh) -> Tensor:
    """This rank's part [t] of ids [s]."""
    if mesh.tp.size == 1:
        return ids
    if not mesh.sequence_parallel:
        return ids
    if ids.shape[0] % mesh.tp.size:
        raise ValueError(
            f"sequence parallel cuts the sequence in tp={mesh.tp.size} equal parts, and "
            f"{ids.shape[0]} positions do not divide; use a multiple of {mesh.tp.size}"
        )
    return ids.chunk(mesh.tp.size)[mesh.tp.rank]


def _whole_length(local_length: int, mesh: Mesh) -> int:
    if mesh.tp.size == 1:
        return local_length
    if not mesh.sequence_parallel:
        return local_length
    return local_length * mesh.tp.size
