"""Sequences from tokens, in an order that no layout changes.

The text is cut into sequences once; each epoch reads them in a permutation of its own, seeded by
(seed, epoch). A step takes the next ``global_batch`` of that stream, and sequence ``j`` of the
step goes to micro-batch ``j // micro_batch``, which is data-parallel rank ``index % dp`` at
accumulation ``index // dp``. So the stream, and where a run stands in it, is one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .data_sources import HeldTokens, Tokens
from .packing import IGNORED as IGNORED
from .packing import Packing, start_of_each
from .permutation import Permutation, number
from .refusal import Refusal


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass reads: ``input_ids`` and ``labels`` [b, s] int64, labels shifted.

    ``starts`` [b, s] int64, None where documents are not kept apart: for each place of the
    sequence, the place where its document begins (0 for one that began before the sequence). They
    stay on the CPU, where Positions wants them.
    """

    input_ids: Tensor
    labels: Tensor
    first_sequence: int  # of the step: the same at every layout
    starts: Tensor | None = None

    @property
    def tokens(self) -> int:
        """How many labels count."""
        return int((self.labels != IGNORED).sum())

    def to(self, device: torch.device) -> MicroBatch:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> MicroBatch:
        """In memory from which a GPU copies while the CPU goes on."""
        starts = None if self.starts is None else self.starts.pin_memory()
        return replace(self._each(Tensor.pin_memory), starts=starts)

    def _each(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        return replace(self, input_ids=change(self.input_ids), labels=change(self.labels))


class Row(NamedTuple):
    """One sequence: token ids and labels [s] int64, and ``starts`` as in MicroBatch."""

    ids: Tensor
    labels: Tensor
    starts: Tensor | None = None


class SequenceSet:
    """Tokens cut into sequences of ``length`` positions, each position's label in one of them.

    The last sequence ends with the text: it begins early, so that what it reads is text and not
    filling, and the labels that the one before it counts are ignored in it. ``begin`` and ``end``:
    the part of ``tokens`` that is meant. ``bound``, where it is set: token ids from there on, and
    those below 0, are refused when they are read.
    """

    def __init__(
        self,
        tokens: Tokens | Tensor,
        length: int,
        *,
        begin: int = 0,
        end: int | None = None,
        packing: Packing = Packing(),
    ) -> None:
        self.tokens: Tokens = HeldTokens(tokens) if isinstance(tokens, Tensor) else tokens
        self.begin = begin
        self.end = len(tokens) if end is None else end
        if self.end - begin < length + 1:
            raise ValueError(
                f"{self.end - begin} tokens hold no sequence of {length} and its last label"
            )
        self.length = length
        self.packing = packing
        self.bound: int | None = None

    def __len__(self) -> int:
        return -(-(self.end - self.begin - 1) // self.length)

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        wanted = self.begin + index * self.length
        begin = min(wanted, self.end - 1 - self.length)
        part = self.tokens.read(begin, begin + self.length + 1)
        self._check(part, begin)
        ids, labels = part[:-1], part[1:].clone()
        labels[: wanted - begin] = IGNORED
        packing = self.packing
        if not packing.packed:
            packing.ignore(ids, labels)
            return Row(ids, labels)
        starts = self.tokens.document_starts(begin, begin + self.length + 1) - begin
        packing.ignore(ids, labels, starts)
        return Row(ids, labels, start_of_each(starts, self.length))

    def _check(self, part: Tensor, begin: int) -> None:
        if self.bound is None:
            return
        least, most = (int(value) for value in part.aminmax())
        if least < 0 or most >= self.bound:
            raise Refusal(
                f"Tokens {begin} to {begin + len(part) - 1} hold token "
                f"{least if least < 0 else most}, and the vocabulary ends at {self.bound - 1}."
            )


class Stream:
    """The endless order in which ``count`` sequences are read: ``stream[k]`` is one's index.

    ``which``: of the data sets of a blend; each has its own order.
    """

    def __init__(self, count: int, seed: int, which: int = 0) -> None:
        self.count = count
        self.seed = seed
        self.which = which
        self._kept = (-1, Permutation(1))  # an epoch and its order, set together: threads may ask

    def __getitem__(self, position: int) -> int:
        epoch, place = divmod(position, self.count)
        kept, order = self._kept
        if kept != epoch:
            order = Permutation(self.count, "epoch", self.seed, self.which, epoch)
            self._kept = epoch, order
        return order[place]


@dataclass(frozen=True)
class Layout:
    """How a global batch is dealt out: each ``dp`` rank takes ``accumulation`` micro-batches."""

    micro_batch: int
    accumulation: int
    dp: int = 1
    dp_rank: int = 0

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.accumulation * self.dp

    def firsts(self) -> Iterator[int]:
        """The step's number of the first sequence of each of this rank's micro-batches."""
        for turn in range(self.accumulation):
            yield (turn * self.dp + self.dp_rank) * self.micro_batch


def dealt(row: Callable[[int], Row], layout: Layout, position: int) -> list[MicroBatch]:
    """This rank's micro-batches of the step that begins at ``position`` of a stream of rows."""
    return [
        _stack([row(position + first + i) for i in range(layout.micro_batch)], first)
        for first in layout.firsts()
    ]


def in_order(row: Callable[[int], Row], layout: Layout, count: int) -> Iterator[MicroBatch]:
    """The first ``count`` rows, in order, this rank's part of them.

    Every rank gets the same number of micro-batches of the same shape, for they communicate; what
    is missing at the end is filled with sequences whose labels are all ignored.
    """
    for start in range(0, count, layout.micro_batch * layout.dp):
        first = start + layout.dp_rank * layout.micro_batch
        rows = []
        for index in range(first, first + layout.micro_batch):
            found = row(index if index < count else 0)
            if index >= count:
                found = found._replace(labels=torch.full_like(found.labels, IGNORED))
            rows.append(found)
        yield _stack(rows, first)


def random_seed(seed: int, step: int, first_sequence: int, stage: int = 0) -> int:
    """What torch's own generator is seeded with before a micro-batch's forward pass.

    So a resumed run draws what the uninterrupted one drew, and no generator state is saved. The
    stages of a pipeline draw apart from each other.
    """
    drawn = number("draw", seed, step, first_sequence)
    return number("stage", drawn, stage) if stage else drawn


def _stack(rows: list[Row], first: int) -> MicroBatch:
    ids, labels, starts = zip(*rows, strict=True)
    packed = None if starts[0] is None else torch.stack(starts)
    return MicroBatch(torch.stack(ids), torch.stack(labels), first, packed)
