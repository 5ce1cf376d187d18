"""Which places of the sequence a rank works on, and where documents begin in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .decoding import Decoding, current_decoding, next_places
from .documents import Documents
from .mesh import Mesh
from .standalone import STANDALONE


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
    - ``documents``: the same bounds in the form that a GPU's kernels read; ``of`` makes them.
    - ``decoding``: where these places come after others whose keys and values were kept.

    Raises ValueError where one of them is not made of integers of these dimensions.
    """

    places: Tensor
    local_places: Tensor
    starts: Tensor | None = None
    documents: Documents | None = None
    decoding: Decoding | None = None

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
        """The positions of this rank's tokens [b, s].

        ``starts`` as above, on the CPU, as a loader makes it: the bounds of the documents are
        read off there, so that no kernel waits for the device, and all goes to the tokens' device.
        Raises ValueError where the sequence cannot be cut as the mesh says, or ``starts`` is on
        another device, does not fit or names a start that is none.
        """
        length, device = input_ids.shape[1] * mesh.cp.size, input_ids.device
        places = own_places(length, mesh, device)
        local_places = _between_layers(places, mesh)
        if starts is None:
            return Positions(
                places, local_places, decoding=None if STANDALONE else current_decoding()
            )
        if starts.shape != (input_ids.shape[0], length):
            raise ValueError(
                f"starts has shape {list(starts.shape)}; for tokens {list(input_ids.shape)} at "
                f"cp={mesh.cp.size} it has to be [{input_ids.shape[0]}, {length}]: whole sequences"
            )
        documents = Documents.of(starts)
        moved = starts.to(device, non_blocking=True)
        return Positions(places, local_places, moved, documents.to(device))

    @staticmethod
    def of_hidden(x: Tensor, mesh: Mesh) -> Positions:
        """Positions for activations [b, t, h] as they stand between the layers."""
        places = own_places(_whole_length(x.shape[1], mesh) * mesh.cp.size, mesh, x.device)
        local_places = _between_layers(places, mesh)
        return Positions(places, local_places, decoding=None if STANDALONE else current_decoding())


class Run(NamedTuple):
    """Rows [row, row + size) of a tensor hold the places [place, place + size) of the sequence."""

    row: int
    place: int
    size: int


def zigzag(length: int, cp: int, rank: int) -> tuple[Run, ...]:
    """The places of a whole sequence that one rank of cp holds, as one or two runs.

    The sequence is cut into 2 * cp pieces, and rank r holds pieces r and 2 * cp - 1 - r: under a
    causal mask early places see little and late ones much, so each rank has the same work.
    Raises ValueError where 2 * cp does not divide the length.
    """
    if cp == 1:
        return (Run(0, 0, length),)
    pieces = 2 * cp
    if length % pieces:
        raise ValueError(
            f"cp={cp} deals a sequence out in {pieces} equal pieces, and {length} positions do "
            f"not divide; use a multiple of {pieces}"
        )
    size = length // pieces
    if rank == cp - 1:  # the two in the middle
        return (Run(0, rank * size, 2 * size),)
    return Run(0, rank * size, size), Run(size, (pieces - 1 - rank) * size, size)


def own_places(length: int, mesh: Mesh, device: torch.device | str = "cpu") -> Tensor:
    """The places [length / cp] of a whole sequence that are this rank's: see ``zigzag``."""
    if mesh.cp.size == 1:
        return next_places(length, device)
    runs = zigzag(length, mesh.cp.size, mesh.cp.rank)
    parts = [torch.arange(run.place, run.place + run.size, device=device) for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


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
