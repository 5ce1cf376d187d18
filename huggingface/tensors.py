"""The table between Hugging Face's tensors and ours: rows of two patterns and a layout.

`*` stands for the number of a layer (`(2*)` and `(2*+1)` in ours: twice it, and one more), `#` for
that of an expert; `{a,b}` in Hugging Face's pattern is one tensor for each alternative, in this
order, and `name[#]` is a row of one tensor that holds all experts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .layouts import LAYOUTS, Layout, Numbers

_BRACES = re.compile(r"\{([^{}]*)\}")
_ROW = "[#]"
_EVEN, _ODD = "(2*)", "(2*+1)"  # their layer is two of ours


@dataclass(frozen=True)
class Row:
    """One pattern of our parameters, and where its entries are in Hugging Face's files."""

    theirs: str
    ours: str
    layout: str = "same"


@dataclass(frozen=True)
class Part:
    """One of Hugging Face's tensors, or the row ``row`` of one that holds all experts."""

    name: str
    row: int | None = None


Read = Callable[[Part], Tensor]


@dataclass(frozen=True)
class Place:
    """One of our parameters, and the tensors of Hugging Face that make it up.

    ``pieces`` has a list of parts for each expert, or one list where there are no experts.
    ``sliced``: all experts are in one tensor of theirs as well.
    """

    name: str
    pieces: tuple[tuple[Part, ...], ...]
    stacked: bool  # over experts, along the first dimension
    layout: Layout

    @property
    def sliced(self) -> bool:
        return self.pieces[0][0].row is not None

    @property
    def plain(self) -> bool:
        """Whether ours is theirs as it is, so that any rows may be copied."""
        return self.layout is LAYOUTS["same"] and not self.stacked

    def expected(self, shape: Sequence[int], numbers: Numbers) -> dict[str, tuple[int, ...]]:
        """Their tensors by name, with the shapes that they have where ours is ``shape``."""
        part = shape[1:] if self.stacked else shape
        parts = self.layout.theirs(torch.empty(tuple(part), device="meta"), numbers)
        before = (len(self.pieces),) if self.sliced else ()
        return {
            one.name: (*before, *tensor.shape)
            for piece in self.pieces
            for one, tensor in zip(piece, parts, strict=True)
        }

    def ours(self, read: Read, numbers: Numbers) -> Iterator[Tensor]:
        """Our tensor, or of experts one after the other: each is read when its turn comes."""
        for piece in self.pieces:
            yield self.layout.ours([read(part) for part in piece], numbers)


@dataclass(frozen=True)
class Table:
    """Rows, what they need to know, and what else a folder of the family may hold.

    ``tied``: names that are a second name of another tensor. ``ignored``: patterns of tensors
    that follow from the config (masks, rotary frequencies).
    """

    rows: tuple[Row, ...]
    numbers: Numbers
    tied: Mapping[str, str]
    ignored: tuple[str, ...]

    def places(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Place]:
        """By name, one place for each of our parameters, whose shapes are given.

        Raises KeyError with its name where no row has a parameter.
        """
        return {name: self._place(name, shape) for name, shape in shapes.items()}

    def is_ignored(self, name: str) -> bool:
        """A pattern that ends in a dot stands for all names that begin so."""
        return any(pattern.fullmatch(name) for pattern in self._ignored)

    @cached_property
    def _ignored(self) -> list[re.Pattern[str]]:
        return [_pattern(f"{text}**" if text.endswith(".") else text) for text in self.ignored]

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], Row]]:
        return [(_pattern(row.ours), row) for row in self.rows]

    def _place(self, name: str, shape: Sequence[int]) -> Place:
        for pattern, row in self._patterns:
            found = pattern.fullmatch(name)
            if found is None:
                continue
            theirs = row.theirs
            if found.groups():
                number = _their_number(row.ours, int(found[1]))
                if number is None:
                    continue
                theirs = theirs.replace("*", str(number))
            stacked = "#" in theirs
            experts = range(shape[0] if stacked else 1)
            pieces = tuple(tuple(_parts(theirs, i)) for i in experts)
            return Place(name, pieces, stacked, LAYOUTS[row.layout])
        raise KeyError(name)


def _their_number(ours: str, number: int) -> int | None:
    """The number of a layer of theirs, where ours has this one; None where the row is another's."""
    if _EVEN in ours:
        return None if number % 2 else number // 2
    if _ODD in ours:
        return number // 2 if number % 2 else None
    return number


def _parts(theirs: str, expert: int) -> Iterator[Part]:
    if theirs.endswith(_ROW):
        yield Part(theirs.removesuffix(_ROW), expert)
        return
    for name in expanded(theirs.replace("#", str(expert))):
        yield Part(name)


def expanded(text: str) -> list[str]:
    """Each alternative of the braces in a name."""
    found = _BRACES.search(text)
    if found is None:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    return [name for part in found[1].split(",") for name in expanded(before + part + after)]


def rows(lines: Iterable[tuple[str, ...]]) -> tuple[Row, ...]:
    """Rows from tuples; one whose two patterns end in `.weight+bias` is two rows."""
    found = []
    for theirs, ours, *layout in lines:
        for kind in ("weight", "bias") if ours.endswith(".weight+bias") else ("",):
            names = (text.replace("weight+bias", kind) for text in (theirs, ours))
            found.append(Row(*names, *layout))
    return tuple(found)


def _pattern(text: str) -> re.Pattern[str]:
    text = text.replace(_EVEN, "*").replace(_ODD, "*")
    return re.compile(re.escape(text).replace(r"\*\*", ".*").replace(r"\*", r"(\d+)"))
