"""Where the documents of packed sequences begin and end, as kernels of varying length read it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LEAST = 128  # rows of a kernel's tile: a shorter document costs as much


@dataclass(frozen=True, eq=False)
class Documents:
    """The bounds of the documents of every sequence.

    - ``bounds`` [b, count + 1], int32: document i of a sequence holds the places
      [bounds[i], bounds[i + 1]); those after the last are empty, at the sequence's end.
    - ``longest``: no document has more places.

    ``count`` and ``longest`` are powers of two (or the sequence's length), so that a compiled layer
    meets few of them.
    """

    bounds: Tensor
    longest: int

    @staticmethod
    def of(starts: Tensor) -> Documents:
        """From ``Positions.starts`` [b, S] on the CPU. Raises ValueError where it is no such."""
        if starts.device.type == "cuda":
            raise ValueError(
                f"starts is on {starts.device}; hand it over on the CPU, as the loader made it: "
                "the bounds of documents are read off it without waiting for the device"
            )
        length = starts.shape[1]
        places = torch.arange(length, device=starts.device)
        first = starts == places  # of its document
        current = torch.where(first, places, 0).cummax(1).values
        if not torch.equal(current, starts.long()):
            row, place = (int(i) for i in (current != starts).nonzero()[0])
            raise ValueError(
                f"starts[{row}, {place}] is {int(starts[row, place])}; the document of place "
                f"{place} begins at {int(current[row, place])}, the last place before it that is "
                "its own start"
            )
        count = _power_of_two(int(first.sum(1).max()), length)
        bounds = torch.full((starts.shape[0], count + 1), length, dtype=torch.int32)
        rows, begins = first.nonzero(as_tuple=True)
        bounds[rows, (first.cumsum(1) - 1)[rows, begins]] = begins.int()
        longest = max(_LEAST, int(bounds.diff(dim=1).max()))
        return Documents(bounds, _power_of_two(longest, max(length, _LEAST)))

    def to(self, device: torch.device) -> Documents:
        return Documents(self.bounds.to(device, non_blocking=True), self.longest)


def _power_of_two(least: int, most: int) -> int:
    return min(1 << (least - 1).bit_length(), most)
