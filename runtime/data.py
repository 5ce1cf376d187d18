"""Sequences from tokens, in an order that no layout changes.

The text is cut into sequences once; each epoch reads them in a permutation of its own, seeded by
(seed, epoch). A step takes the next ``global_batch`` of that stream, and sequence ``j`` of the
step goes to micro-batch ``j // micro_batch``, which is data-parallel rank ``index % dp`` at
accumulation ``index // dp``. So the stream, and where a run stands in it, is one number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .refusal import Refusal
from .safetensors import bytes_of

IGNORED = -100  # a label that no loss counts


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass reads: ``input_ids`` and ``labels`` [b, s] int64, labels shifted."""

    input_ids: Tensor
    labels: Tensor
    first_sequence: int  # of the step: the same at every layout

    @property
    def tokens(self) -> int:
        """How many labels count."""
        return int((self.labels != IGNORED).sum())

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(
            self.input_ids.to(device, non_blocking=True),
            self.labels.to(device, non_blocking=True),
            self.first_sequence,
        )


class SequenceSet:
    """Tokens [n] cut into sequences of ``length`` positions, each position's label in one of them.

    The last sequence ends with the text: it begins early, so that what it reads is text and not
    filling, and the labels that the one before it counts are ignored in it.
    """

    def __init__(self, tokens: Tensor, length: int) -> None:
        if len(tokens) < length + 1:
            raise ValueError(
                f"{len(tokens)} tokens hold no sequence of {length} and its last label"
            )
        self.tokens = tokens
        self.length = length

    def __len__(self) -> int:
        return -(-(len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Token ids and labels of sequence ``index``: [length] int64 each."""
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        wanted = index * self.length
        begin = min(wanted, len(self.tokens) - 1 - self.length)
        part = self.tokens[begin : begin + self.length + 1].long()
        ids, labels = part[:-1], part[1:].clone()
        labels[: wanted - begin] = IGNORED
        return ids, labels


class Stream:
    """The endless order in which ``count`` sequences are read: ``stream[k]`` is one's index."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self._epoch = -1
        self._order = torch.empty(0)

    def __getitem__(self, position: int) -> int:
        epoch, place = divmod(position, self.count)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(_number("epoch", self.seed, epoch))
            self._order = torch.randperm(self.count, generator=generator)
            self._epoch = epoch
        return int(self._order[place])


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


def training_batches(
    sequences: SequenceSet, stream: Stream, layout: Layout, position: int
) -> list[MicroBatch]:
    """This rank's micro-batches of the step that begins at ``position`` of the stream."""
    batches = []
    for first in layout.firsts():
        rows = [sequences[stream[position + first + i]] for i in range(layout.micro_batch)]
        batches.append(_stack(rows, first))
    return batches


def held_out_batches(sequences: SequenceSet, layout: Layout, count: int) -> Iterator[MicroBatch]:
    """The first ``count`` sequences, in order, this rank's part of them.

    Every rank gets the same number of micro-batches of the same shape, for they communicate; what
    is missing at the end is filled with sequences whose labels are all ignored.
    """
    count = min(count, len(sequences))
    for start in range(0, count, layout.micro_batch * layout.dp):
        first = start + layout.dp_rank * layout.micro_batch
        rows = []
        for index in range(first, first + layout.micro_batch):
            ids, labels = sequences[index if index < count else 0]
            rows.append((ids, labels if index < count else torch.full_like(labels, IGNORED)))
        yield _stack(rows, first)


def split(
    tokens: Tensor, length: int, valid_fraction: float
) -> tuple[SequenceSet, SequenceSet | None]:
    """Training sequences, and held-out ones from the tail of the text (None at fraction 0).

    The tail is at least one sequence long. Raises Refusal where the text is too short.
    """
    if not len(tokens):
        raise Refusal(f"The text has 0 tokens; one sequence takes {length} and the label after it.")
    need = length + 1
    tail = max(round(len(tokens) * valid_fraction), need) if valid_fraction > 0 else 0
    if len(tokens) < need + tail:
        held_out = f" and {tail} to hold out (--valid-fraction 0 holds out none)" if tail else ""
        raise Refusal(
            f"The text has {len(tokens)} tokens, too short for one sequence: --seq-length {length} "
            f"takes {need} with its last label{held_out}."
        )
    cut = len(tokens) - tail
    return (
        SequenceSet(tokens[:cut], length),
        SequenceSet(tokens[cut:], length) if tail else None,
    )


def fingerprint(tokens: Tensor) -> str:
    """A hash of all tokens: a position in the stream of one text means nothing in another's."""
    digest = hashlib.sha256(str(tokens.dtype).encode())
    digest.update(bytes_of(tokens.contiguous()))
    return digest.hexdigest()[:16]


def random_seed(seed: int, step: int, first_sequence: int) -> int:
    """What torch's own generator is seeded with before a micro-batch's forward pass.

    So a resumed run draws what the uninterrupted one drew, and no generator state is saved.
    """
    return _number("draw", seed, step, first_sequence)


def _stack(rows: list[tuple[Tensor, Tensor]], first: int) -> MicroBatch:
    ids, labels = zip(*rows, strict=True)
    return MicroBatch(torch.stack(ids), torch.stack(labels), first)


def _number(*parts: object) -> int:
    """63 bits that depend on all parts and on nothing else (Python's own hash is salted)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
