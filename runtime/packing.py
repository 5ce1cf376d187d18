"""Documents packed in a sequence: where each begins, and which labels cross a bound."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100  # a label that no loss counts


@dataclass(frozen=True)
class Packing:
    """What bounds of documents do.

    - ``packed``: attention stays inside a document, so that a place knows nothing of what comes
      after its end: the label at a document's last place, the next one's first token, is ignored.
      Where the document ends with ``eod`` it counts, as it does in Megatron: what follows an end
      of document is learned as what begins one.
    - ``eod_mask_loss``: the labels at all places that hold ``eod`` are ignored (Megatron's option
      of this name), packed or not.
    """

    packed: bool = False
    eod: int | None = None
    eod_mask_loss: bool = False

    def ignore(self, ids: Tensor, labels: Tensor, starts: Tensor | None = None) -> None:
        """Ignore labels [s] in place; ``starts``: where documents begin, counted from ids[0]."""
        if self.packed and starts is not None:
            last = starts[(starts > 0) & (starts <= len(ids))] - 1
            if self.eod is not None:
                last = last[ids[last] != self.eod]
            labels[last] = IGNORED
        if self.eod_mask_loss and self.eod is not None:
            labels[ids == self.eod] = IGNORED


def start_of_each(starts: Tensor, length: int) -> Tensor:
    """For each of ``length`` places, the place where its document begins: [length] int64.

    ``starts``: where documents begin, counted from place 0. One that began before it begins at 0.
    """
    places = torch.zeros(length, dtype=torch.int64)
    inside = starts[(starts >= 0) & (starts < length)]
    places[inside] = inside
    return places.cummax(0).values
