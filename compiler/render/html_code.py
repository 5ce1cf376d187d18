"""Lines of code for a page: both texts beside each other, what differs within a line marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .code_lines import CodeBlock, CodeLine
from .svg_text import visible


@dataclass(frozen=True)
class Side:
    """One text's line: its number, its sign, and pieces with whether each differs."""

    number: int
    sign: str
    pieces: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Pair:
    """A line of each text; of a gap neither."""

    before: Side | None
    after: Side | None


@dataclass(frozen=True)
class CodeView:
    """A block of lines, and how many it adds and removes."""

    name: str
    added: int
    removed: int
    pairs: tuple[Pair, ...]


def code_views(blocks: Sequence[CodeBlock]) -> tuple[CodeView, ...]:
    return tuple(
        CodeView(
            visible(block.name),
            added=sum(line.sign == "+" for line in block.lines),
            removed=sum(line.sign == "-" for line in block.lines),
            pairs=tuple(_pairs(block.lines)),
        )
        for block in blocks
    )


def _pairs(lines: Sequence[CodeLine]) -> Iterator[Pair]:
    olds: list[CodeLine] = []
    news: list[CodeLine] = []
    for line in lines:
        if line.sign == "-" and news:  # a change right behind another
            yield from _beside(olds, news)
        if line.sign == "-":
            olds.append(line)
        elif line.sign == "+":
            news.append(line)
        else:
            yield from _beside(olds, news)
            gap = line.sign == "@"
            yield (
                Pair(None, None) if gap else Pair(_side(line, line.before), _side(line, line.after))
            )
    yield from _beside(olds, news)


def _beside(olds: list[CodeLine], news: list[CodeLine]) -> Iterator[Pair]:
    """Lines that went and lines that came, likes beside each other; empties both lists."""
    while olds or news:
        # A line without marks has no like on the other side; it stands alone, before the next pair.
        if olds and news and bool(olds[0].marks) == bool(news[0].marks):
            yield Pair(_side(old := olds.pop(0), old.before), _side(new := news.pop(0), new.after))
        elif olds and (not news or not olds[0].marks):
            yield Pair(_side(old := olds.pop(0), old.before), None)
        else:
            yield Pair(None, _side(new := news.pop(0), new.after))


def _side(line: CodeLine, number: int | None) -> Side:
    assert number is not None  # a line that stands in a text has a number there
    pieces: list[tuple[str, bool]] = []
    end = 0
    for start, stop in line.marks:
        pieces += [(line.text[end:start], False), (line.text[start:stop], True)]
        end = stop
    pieces.append((line.text[end:], False))
    return Side(number, line.sign, tuple((visible(text), mark) for text, mark in pieces if text))
