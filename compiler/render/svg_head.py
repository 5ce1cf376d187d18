"""The lines of text in a block, or above what is in a frame: what stands left and right in each."""

from __future__ import annotations

from dataclasses import dataclass

from .svg_items import THIN, Block, Frame
from .svg_text import STYLES

_BETWEEN = 10  # pixels, at least, of a left and a right text


@dataclass(frozen=True)
class Line:
    """Texts and the names of their styles; either may be empty."""

    left: str = ""
    left_style: str = "words"
    right: str = ""
    right_style: str = "count"

    @property
    def height(self) -> float:
        styles = [self.left_style] * bool(self.left) + [self.right_style] * bool(self.right)
        return max((STYLES[style].line for style in styles), default=0)


def head(block: Block, room: float) -> tuple[Line, ...]:
    """The lines of at most so many pixels; what does not fit one gets another."""
    badge = f"× {block.times:,}" if block.times > 1 else ""
    count = block.count + (" each" if badge and block.count else "")
    if block.kind == "model":
        return _line(block.title, "heading", "", "count", room) + _line(
            ", ".join(filter(None, (block.name, f"{count} parameters", block.words))),
            "words", "", "count", room,
        )  # fmt: skip
    thin = block.kind in THIN
    title = "words" if thin else "title"
    if badge:
        first = _line(block.title, title, badge, "badge", room)
        last = _line(block.name, "name", count, "count", room)
    elif isinstance(block, Frame):
        first = _line(block.title, title, count, "count", room)
        last = _line(block.name, "name", "", "count", room)
    else:
        first = _line(block.title, title, block.name, "name", room)
        if len(first) > 1:  # a name beside nothing stands left
            first = _line(block.title, title, "", "name", room)
            first += _line(block.name, "name", "", "count", room)
        last = () if thin else _line("", "words", count, "count", room)
    words = _line(block.words, "words", "", "count", room)
    if words and last and not last[0].left:  # the count beside the last words
        words = (*words[:-1], *_line(words[-1].left, "words", last[0].right, "count", room))
        last = ()
    return (*first, *words, *last)


def _line(
    left: str, left_style: str, right: str, right_style: str, room: float
) -> tuple[Line, ...]:
    lefts = STYLES[left_style].wrap(left, room)
    rights = STYLES[right_style].wrap(right, room)
    lines = [Line(text, left_style) for text in lefts]
    if lines and len(rights) == 1:
        taken = STYLES[left_style].width(lefts[-1]) + STYLES[right_style].width(right)
        if taken + _BETWEEN <= room:
            lines[-1] = Line(lefts[-1], left_style, right, right_style)
            return tuple(lines)
    return (*lines, *(Line(right=text, right_style=right_style) for text in rights))
