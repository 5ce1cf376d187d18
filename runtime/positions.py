"""Which places of the sequence a rank works on, and where documents begin in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .mesh import Mesh


@dataclass(frozen=True, eq=False)
class Positions:
    """The places of the sequence that this rank holds, the same for every sequence of the batch.

    - ``places`` [s]: those that its attention sees, counted from the start of the whole sequence.
      Under context parallel they are dealt out zigzag (``own_places``).
    - ``local_places`` [t]: those that it holds between the layers: a part of ``places`` under
      sequence parallel, else all of them.
    - ``starts`` [b, s * cp], None where a sequence is one document: for every place of the whole
      sequence, the place at which its document begins. Attention stays inside a document, and
      positions count from its start.

    Raises ValueError where one of them is not made of integers of these dimensions.
    """

    places: Tensor
    local_places: Tensor
    starts: Tensor | None = None

    def __post_init__(self) -> None:
        wanted = (("places", self.places, 1), ("local_places", self.local_places, 1))
        for name, given, dims in (*wanted, ("starts", self.starts, 2)):
            if given is not None and (given.dim() != dims or given.is_floating_point()):
                what = "one row of integers" if dims == 1 else "a row of integers for each sequence"
                raise ValueError(
                    f"Positions.{name} has shape {list(given.shape)} and dtype {given.dtype}; it "
                    f"has to be {what}, one for each place"
                )

    @property
    def ids(self) -> Tensor:
        """The position ids of ``places``: [s], or [b, s] where documents restart them."""
        return self._counted_from_start(self.places)

    @property
    def local_ids(self) -> Tensor:
        """The position ids of ``local_places``: [t], or [b, t] where documents restart them."""
        return self._counted_from_start(self.local_places)

    def _counted_from_start(self, places: Tensor) -> Tensor:
        return places if self.starts is None else places - self.starts[:, places]

    @staticmethod
    def of(input_ids: Tensor, mesh: Mesh, starts: Tensor | None = None) -> Positions:
        """The positions of this rank's tokens [b, s]; ``starts`` as above, on the same device.

        Raises ValueError where the sequence cannot be cut as the mesh says.
        """
        places = own_places(input_ids.shape[1] * mesh.cp.size, mesh, input_ids.device)
        return Positions(places, _between_layers(places, mesh), starts)

    @staticmethod
    def of_hidden(x: Tensor, mesh: Mesh) -> Positions:
        """Positions for activations [b, t, h] as they stand between the layers."""
        places = own_places(_whole_length(x.shape[1], mesh) * mesh.cp.size, mesh, x.device)
        return Positions(places, _between_layers(places, mesh))


def own_places(length: int, mesh: Mesh, device: torch.device | str = "cpu") -> Tensor:
    """The places [length / cp] of a whole sequence that are this rank's.

    Under context parallel the sequence is cut into 2 * cp pieces, and rank r holds pieces r and
    2 * cp - 1 - r: under a causal mask early places see little and late ones much, so each rank
    has the same work. Raises ValueError where 2 * cp does not divide the length.
    """
    if mesh.cp.size == 1:
        return torch.arange(length, device=device)
    pieces = 2 * mesh.cp.size
    if length % pieces:
        raise ValueError(
            f"cp={mesh.cp.size} deals a sequence out in {pieces} equal pieces, and {length} "
            f"positions do not divide; use a multiple of {pieces}"
        )
    size = length // pieces
    first, last = mesh.cp.rank * size, (pieces - 1 - mesh.cp.rank) * size
    return torch.cat(
        [
            torch.arange(first, first + size, device=device),
            torch.arange(last, last + size, device=device),
        ]
    )


def _between_layers(places: Tensor, mesh: Mesh) -> Tensor:
    """This rank's part [t] of places [s]."""
    if mesh.tp.size == 1:
        return places
    if not mesh.sequence_parallel:
        return places
    if places.shape[0] % mesh.tp.size:
        raise ValueError(
            f"sequence parallel cuts the sequence in tp={mesh.tp.size} equal parts, and "
            f"{places.shape[0]} positions do not divide; use a multiple of {mesh.tp.size}"
        )
    return places.chunk(mesh.tp.size)[mesh.tp.rank]


def _whole_length(local_length: int, mesh: Mesh) -> int:
    if mesh.tp.size == 1:
        return local_length
    if not mesh.sequence_parallel:
        return local_length
    return local_length * mesh.tp.size
