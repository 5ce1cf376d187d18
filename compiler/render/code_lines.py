"""The lines of two pages that differ: class by class, in the order of the page."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .code_blocks import Piece, pairs

_CONTEXT = 3  # lines around a change
_PAIRED = 400  # old times new lines of a change, up to which like is looked for
_ALIKE = 0.5  # of the words of two lines, from which one is the other edited

Span = tuple[int, int]


@dataclass(frozen=True)
class CodeLine:
    """A line: `before` and `after` are its numbers in the two texts. `sign` "@" is a gap between
    lines that are shown. `marks`: from which to which character it differs from its like.
    """

    sign: Literal[" ", "+", "-", "@"]
    before: int | None
    after: int | None
    text: str
    marks: tuple[Span, ...] = ()


@dataclass(frozen=True)
class CodeBlock:
    """A class or a function, what is above the first (`top`), or between them, where it differs."""

    name: str
    lines: tuple[CodeLine, ...]


def code_lines(
    before: str, after: str, *, before_start: int = 1, after_start: int = 1
) -> tuple[CodeBlock, ...]:
    """What differs in two texts of Python; nothing where they are equal.

    A class that was renamed and is otherwise much the same stands as one. `before_start`,
    `after_start`: the number of the first line, where a header was taken off.
    """
    blocks = []
    for old, new in pairs(before, after):
        lines = tuple(_lines(old, new, before_start, after_start))
        if lines:
            blocks.append(CodeBlock(_name(old, new), lines))
    return tuple(blocks)


def _name(old: Piece | None, new: Piece | None) -> str:
    if old and new and old.name != new.name:
        return f"{old.name} → {new.name}"
    piece = new or old
    assert piece is not None  # a pair has one side at least
    return piece.name


def _lines(
    old: Piece | None, new: Piece | None, before_start: int, after_start: int
) -> Iterator[CodeLine]:
    first, second = old.lines if old else (), new.lines if new else ()
    if first == second:
        return
    at_before = before_start + (old.start if old else 0)
    at_after = after_start + (new.start if new else 0)
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            yield CodeLine("@", None, None, "")
        for tag, a, a_end, b, b_end in group:
            if tag == "equal":
                for i in range(a_end - a):
                    yield CodeLine(" ", at_before + a + i, at_after + b + i, first[a + i])
                continue
            old_marks, new_marks = _marks(first[a:a_end], second[b:b_end])
            for i in range(a, a_end):
                yield CodeLine("-", at_before + i, None, first[i], old_marks.get(i - a, ()))
            for i in range(b, b_end):
                yield CodeLine("+", None, at_after + i, second[i], new_marks.get(i - b, ()))


def _marks(
    old: Sequence[str], new: Sequence[str]
) -> tuple[dict[int, tuple[Span, ...]], dict[int, tuple[Span, ...]]]:
    """Where lines that are edits of each other differ, by their places; pairs keep their order."""
    first: dict[int, tuple[Span, ...]] = {}
    second: dict[int, tuple[Span, ...]] = {}
    if len(old) * len(new) > _PAIRED:
        return first, second
    begin = 0
    for i, line in enumerate(old):
        words = _words(line)
        tried = {j: _Pair(words, _words(new[j])) for j in range(begin, len(new))}
        ratio = {j: pair.matcher.ratio() for j, pair in tried.items()}
        best = max(ratio, key=lambda j: (ratio[j], -j), default=None)
        if best is not None and ratio[best] >= _ALIKE:
            first[i], second[best] = tried[best].spans()
            begin = best + 1
    return first, second


def _words(line: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+|\s+|[^\w\s]", line))


@dataclass(frozen=True)
class _Pair:
    """Two lines by their words."""

    old: tuple[str, ...]
    new: tuple[str, ...]

    @functools.cached_property
    def matcher(self) -> difflib.SequenceMatcher[str]:
        # Blanks are like each other in any two lines.
        return difflib.SequenceMatcher(str.isspace, self.old, self.new, autojunk=False)

    def spans(self) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Where each differs from the other."""
        old, new = [], []
        for tag, a, a_end, b, b_end in self.matcher.get_opcodes():
            if tag != "equal":
                old.append(_span(self.old, a, a_end))
                new.append(_span(self.new, b, b_end))
        return tuple(s for s in old if s[0] < s[1]), tuple(s for s in new if s[0] < s[1])


def _span(words: Sequence[str], start: int, end: int) -> Span:
    begin = sum(map(len, words[:start]))
    return begin, begin + sum(map(len, words[start:end]))
