"""``open_data``: what a run reads, from text or token files, one data set or a blend of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .blend import Blend
from .data import Layout, MicroBatch, Row, SequenceSet, Stream, dealt, in_order
from .data_sources import Source, Tokens, open_source
from .packing import Packing
from .refusal import Refusal
from .tokenizer import Tokenizer


class Data:
    """The endless stream of a run's training sequences, and those that are held out.

    - ``count``: training sequences, which an epoch reads once; of a blend, of all sets together.
    - ``held_out_count``: held-out sequences; of a blend, those that can be read before one set's
      are at their end.
    - ``identity``: what a checkpoint compares, for a position in one stream means nothing in
      another.
    - ``tokenizer``: None where token files name none and none was given; ``tokenizer_name``: its
      kind and hash, as the token files say too, None where no one does.
    - ``largest``: the largest token that was seen while opening: of all of the text, of token files
      that ``specc tokenize`` wrote or that are small; else of samples. What comes later is checked
      when it is read, by ``refuse_from``.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        weights: Sequence[float],
        *,
        length: int,
        seed: int,
        valid_fraction: float,
        packings: Sequence[Packing],
    ) -> None:
        self.tokenizer: Tokenizer | None = sources[0].tokenizer
        self.tokenizer_name = sources[0].tokenizer_name
        self.largest = max(source.largest for source in sources)
        self._blend = Blend(weights)
        pairs = [
            cut_tail(source.tokens, length, valid_fraction, packing)
            for source, packing in zip(sources, packings, strict=True)
        ]
        self._sets = [training for training, _ in pairs]
        self._held_out = [tail for _, tail in pairs if tail is not None]
        self._streams = [Stream(len(one), seed, which) for which, one in enumerate(self._sets)]
        self.count = sum(map(len, self._sets))
        tails = list(map(len, self._held_out))
        self.held_out_count = self._blend.whole(tails) if tails else 0
        parts = [
            f"{source.identity} in {len(one)} sequences"
            for source, one in zip(sources, self._sets, strict=True)
        ]
        if len(parts) > 1:
            parts = [f"{weight} x {part}" for weight, part in zip(weights, parts, strict=True)]
        self.identity = ", ".join(parts)

    def training_batches(self, layout: Layout, position: int) -> list[MicroBatch]:
        """This rank's micro-batches of the step that begins at ``position`` of the stream."""
        return dealt(self._training_row, layout, position)

    def held_out_batches(self, layout: Layout, count: int) -> Iterator[MicroBatch]:
        """The first ``count`` held-out sequences, in order, this rank's part of them.

        Every rank gets the same number of micro-batches of the same shape, for they communicate;
        what is missing at the end is filled with sequences whose labels are all ignored.
        """
        return in_order(self._held_out_row, layout, min(count, self.held_out_count))

    def refuse_from(self, vocabulary: int) -> None:
        """From now on, raise Refusal where a token that is read is not in [0, vocabulary)."""
        for one in (*self._sets, *self._held_out):
            one.bound = vocabulary

    def _training_row(self, position: int) -> Row:
        which, place = self._blend[position]
        return self._sets[which][self._streams[which][place]]

    def _held_out_row(self, position: int) -> Row:
        which, place = self._blend[position]
        return self._held_out[which][place]


def open_data(
    paths: Sequence[tuple[float, Path]],
    *,
    length: int,
    seed: int,
    tokenizer: Path | None = None,
    text_field: str = "text",
    valid_fraction: float = 0.05,
    packed: bool = False,
    eod: int | None = None,
    eod_mask_loss: bool = False,
) -> Data:
    """The data sets at ``paths``, each with its weight in the blend.

    A path is a text file, JSON lines, a folder of those; or token files: a prefix, one of the two
    files, or a folder of several, which are read one after the other, by name. ``packed``,
    ``eod_mask_loss``: as in ``Packing``; ``eod``: the end of document of token files that
    ``specc tokenize`` did not write.

    Raises Refusal where one cannot be read or is too short, or they differ in tokenizer.
    """
    sources = [open_source(path, tokenizer=tokenizer, text_field=text_field) for _, path in paths]
    names = {source.tokenizer_name for source in sources} - {None}
    if len(names) > 1:
        each = ", ".join(
            f"{path} {source.tokenizer_name}"
            for (_, path), source in zip(paths, sources, strict=True)
        )
        raise Refusal(f"The data sets are of {len(names)} tokenizers: {each}.")
    packings = []
    for (_, path), source in zip(paths, sources, strict=True):
        own = source.eod if source.eod is not None else eod
        if eod is not None and own != eod:
            raise Refusal(f"{path} ends its documents with token {own}, and {eod} was given.")
        if eod_mask_loss and own is None:
            raise Refusal(
                f"--eod-mask-loss needs the token that ends a document, and {path} says none: give "
                "it, or write the token files with specc tokenize --append-eod."
            )
        packings.append(Packing(packed, own, eod_mask_loss))
    return Data(
        sources,
        [weight for weight, _ in paths],
        length=length,
        seed=seed,
        valid_fraction=valid_fraction,
        packings=packings,
    )


def cut_tail(
    tokens: Tokens, length: int, valid_fraction: float, packing: Packing = Packing()
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
    training = SequenceSet(tokens, length, end=cut, packing=packing)
    if not tail:
        return training, None
    return training, SequenceSet(tokens, length, begin=cut, packing=packing)
