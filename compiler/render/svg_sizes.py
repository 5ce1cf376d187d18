"""How large each block and frame is, and where its children stand in it.

Everything in a frame hangs on its axis, the line down which the model flows: a size is what lies
left and right of it. Lengths are pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .svg_head import Line, head
from .svg_items import INSIDE, THIN, Block, Frame, Link
from .svg_levels import Lane, rows
from .svg_routes import routes
from .svg_text import STYLES

WIDE, NARROW = 264, 176  # blocks alone in their row, and beside others
PAD = 12  # from a frame to what is in it
SIDE = 20  # between blocks in a row
LANE = 18  # from one line beside the rows to the next
SHADOW = 10  # by which a stack's other boxes show
MARK = 24  # a mark on a line, with the gap after it
PLUS = 26  # a plus on a line
BRANCH, LABEL, BUS, ARROW = 12, 17, 12, 16  # the zones between two rows
PLAIN = 18  # between rows that no line joins


@dataclass(frozen=True)
class Cell:
    """A child in its row: where its axis is, from the frame's."""

    child: int
    offset: float


@dataclass(frozen=True)
class Gap:
    """What lies between two rows: how much for lines that leave, that change sides, for a label."""

    branch: float = 0
    bus: float = 0
    label: float = 0
    arrow: float = 0

    @property
    def height(self) -> float:
        return (self.branch + self.bus + self.label + self.arrow) or PLAIN


@dataclass(frozen=True)
class Row:
    """Blocks side by side, and the heights of what is above them (marks), of the tallest, and of
    what is below (marks, then pluses).
    """

    gap: Gap
    cells: tuple[Cell, ...]
    entry: float
    box: float
    exit: float
    plus: float

    @property
    def height(self) -> float:
        return self.gap.height + self.entry + self.box + self.exit + self.plus


@dataclass(frozen=True)
class Size:
    """A block with its measures: what lies left and right of its axis, its lines of text, and of a
    frame its rows, the gap below them and the lanes beside them.
    """

    block: Block
    left: float
    right: float
    height: float
    head: tuple[Line, ...]
    children: tuple[Size, ...] = ()
    rows: tuple[Row, ...] = ()
    end: Gap = Gap()
    rounds: tuple[Lane, ...] = ()  # residual, on the left
    skips: tuple[Lane, ...] = ()  # on the right

    @property
    def shadow(self) -> float:
        return SHADOW if self.block.times > 1 else 0


def mark_width(text: str) -> float:
    """Of a mark, its round ends included."""
    return STYLES["mark"].width(text) + 16


def head_height(lines: Sequence[Line]) -> float:
    return sum(line.height for line in lines)


def head_clear(size: Size) -> bool:
    """Whether a line down the axis passes between the texts of a frame's head, and there is one."""
    links = size.block.links if isinstance(size.block, Frame) else ()
    left, right = size.left - PAD - 6, size.right - size.shadow - PAD - 6
    return any(link.source == INSIDE for link in links) and all(
        STYLES[line.left_style].width(line.left) <= left
        and STYLES[line.right_style].width(line.right) <= right
        for line in size.head
    )


def size(block: Block, width: float = WIDE) -> Size:
    """Measure a block and all in it."""
    if isinstance(block, Frame):
        return _frame(block, width)
    width = max([width, *(mark_width(text) + 8 for text in block.marks.during)])
    lines = head(block, width - 2 * PAD)
    marks = len(block.marks.during) * MARK
    padding = 10 if block.kind in THIN else 18
    shadow = SHADOW if block.times > 1 else 0
    height = head_height(lines) + marks + padding + shadow
    return Size(block, width / 2, width / 2 + shadow, height, lines)


def _frame(frame: Frame, width: float) -> Size:
    grid = rows(len(frame.children), frame.links)
    abreast = {child for row in grid if len(row) > 1 for child in row}
    children = tuple(
        size(child, NARROW if i in abreast else width) for i, child in enumerate(frame.children)
    )
    row_of = {child: number for number, row in enumerate(grid) for child in row}
    rounds, skips, direct = routes(frame.links, row_of, len(grid))
    made = tuple(
        _row(row, children, _gap(frame.links, direct, row_of, number, row), rounds)
        for number, row in enumerate(grid)
    )
    end = _gap(frame.links, direct, row_of, len(grid), [INSIDE]) if frame.links else Gap(arrow=PAD)
    bare = frame.kind == "model"
    left = max((_left(row, children) for row in made), default=width / 2)
    right = max((_right(row, children, frame.links) for row in made), default=width / 2)
    left += _depth(rounds) * LANE + (0 if bare else PAD)
    right += _depth(skips) * LANE + (0 if bare else PAD)
    lines = head(frame, left + right - (0 if bare else 2 * PAD))
    shadow = SHADOW if frame.times > 1 else 0
    height = head_height(lines) + 8 + sum(row.height for row in made) + end.height + shadow
    return Size(
        frame, left, right + shadow, height, lines, children, made, end, tuple(rounds), tuple(skips)
    )


def _depth(found: Sequence[Lane]) -> int:
    return max((lane.number + 1 for lane in found), default=0)


def _gap(
    links: Sequence[Link],
    direct: Sequence[Link],
    row_of: dict[int, int],
    number: int,
    row: Sequence[int],
) -> Gap:
    """The gap above a row, `number` the last one's plus 1 for that above the output."""
    arriving = [link for link in links if link.target in row and not link.residual]
    leaving = [
        link
        for link in links
        if link not in direct
        and (-1 if link.source == INSIDE else row_of[link.source]) == number - 1
    ]
    if not arriving and not leaving:
        return Gap()
    straight = [link for link in direct if link in arriving]
    many = len(row) > 1 or len({link.source for link in straight}) > 1
    bends = many or any(link not in straight for link in arriving)
    crooked = any(_abreast(link.source, row_of) for link in straight)
    return Gap(
        branch=BRANCH if leaving else 0,
        bus=BUS if bends or crooked else 0,
        label=LABEL if any(link.label for link in straight) else 0,
        arrow=ARROW,
    )


def _abreast(child: int, row_of: dict[int, int]) -> bool:
    return child != INSIDE and list(row_of.values()).count(row_of[child]) > 1


def _row(row: Sequence[int], children: Sequence[Size], gap: Gap, rounds: Sequence[Lane]) -> Row:
    whole = sum(children[c].left + children[c].right for c in row) + SIDE * (len(row) - 1)
    x = -whole / 2 if len(row) > 1 else -children[row[0]].left
    cells = []
    for child in row:
        cells.append(Cell(child, x + children[child].left))
        x += children[child].left + children[child].right + SIDE
    pluses = [sum(lane.links[0].target == c for lane in rounds) for c in row]
    return Row(
        gap,
        tuple(cells),
        entry=MARK * max(len(children[c].block.marks.entry) for c in row),
        box=max(children[c].height for c in row),
        exit=MARK * max(len(children[c].block.marks.exit) for c in row)
        + (6 if any(children[c].block.marks.exit for c in row) else 0),
        plus=PLUS * max(pluses),
    )


def _left(row: Row, children: Sequence[Size]) -> float:
    return max(children[cell.child].left - cell.offset for cell in row.cells)


def _right(row: Row, children: Sequence[Size], links: Sequence[Link]) -> float:
    """Also room for the labels beside the lines that arrive."""
    labels = [
        8 + STYLES["shape"].width(link.label)
        for link in links
        if link.target in [cell.child for cell in row.cells] or link.target == INSIDE
    ]
    return max([children[cell.child].right + cell.offset for cell in row.cells] + labels)
