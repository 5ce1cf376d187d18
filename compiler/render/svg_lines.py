"""The lines between the children of a frame: down, round on the left, past on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .svg_items import INSIDE, Frame, Link
from .svg_pen import Pen, Point
from .svg_sizes import BRANCH, LABEL, LANE, PAD, PLUS, Cell, Gap, Row, Size

_RADIUS = 8.5  # of a plus
_SECOND = 0.36  # where a second line arrives at a block, from its axis, as a share of its width


def draw_lines(pen: Pen, size: Size, x: float, tops: Sequence[float]) -> None:
    """All lines of a frame. `tops`: where the gaps above each row and above the output begin."""
    _Lines(pen, size, x, tops).draw()


@dataclass(frozen=True)
class _Lines:
    pen: Pen
    size: Size
    x: float
    tops: Sequence[float]

    def draw(self) -> None:
        lanes = (*self.size.rounds, *self.size.skips)
        aside = {id(link) for lane in lanes for link in lane.links}
        assert isinstance(self.size.block, Frame)
        for link in self.size.block.links:
            if id(link) not in aside and link.source != link.target:
                self.straight(link)
        for lane in self.size.skips:
            for link in lane.links:
                self.past(link, lane.number)
        for lane in self.size.rounds:
            for link in lane.links:
                self.round(link, lane.number)
        for row, top in zip(self.size.rows, self.tops, strict=False):
            for cell in row.cells:
                for i in range(self.pluses(cell.child)):
                    self.plus(self.x + cell.offset, self.plus_y(row, top, i))

    def straight(self, link: Link) -> None:
        """From a row to the next: down, over, down."""
        start_x, start_y = self.leaves(link.source)
        end_x, gap_top, end_y = self.arrives(link.target)
        points = [(start_x, start_y)]
        if start_x != end_x:
            bend = gap_top + self.gap(link.target).branch + 4
            points += [(start_x, bend), (end_x, bend)]
        points.append((end_x, end_y))
        self.pen.line("flow", points, link.label, arrow=link.target != INSIDE)
        if link.label and link == self.first(link.target):
            gap = self.gap(link.target)
            self.pen.text(
                "shape", end_x + 8, gap_top + gap.branch + gap.bus + LABEL - 5, link.label
            )

    def first(self, target: int) -> Link:
        """Of the links that arrive at a child from the row above; its label stands for all."""
        assert isinstance(self.size.block, Frame)
        found = (k for k in self.size.block.links if k.target == target and k.label)
        return next(found)

    def past(self, link: Link, lane: int) -> None:
        """Past rows on the right, in to the side of the block's middle."""
        lane_x = self.x + self.size.right - self.size.shadow - PAD / 2 - LANE * (lane + 0.4)
        start = self.leaves(link.source)
        branch = self.branch(link.source)
        end_x, gap_top, end_y = self.arrives(link.target)
        bend = gap_top + self.gap(link.target).branch + 4
        points: list[Point] = [start, (start[0], branch), (lane_x, branch), (lane_x, bend)]
        if link.target == INSIDE:
            points += [(end_x, bend), (end_x, end_y)]
        else:
            target = self.size.children[link.target]
            away = end_x + _SECOND * min(target.left, target.right) * 2
            points += [(away, bend), (away, end_y)]
        self.pen.line("flow", points, link.label, arrow=link.target != INSIDE)

    def round(self, link: Link, number: int) -> None:
        """A residual stream: round on the left into a plus."""
        lane_x = self.x - self.size.left + PAD / 2 + LANE * (self.depth - number - 0.6)
        start_x, _ = self.leaves(link.source)
        start_y = self.branch(link.source)
        row, top, cell = self.place(link.target)
        end_x = self.x + cell.offset
        into = [lane for lane in self.size.rounds if lane.links[0].target == link.target]
        plus = self.plus_y(row, top, next(i for i, lane in enumerate(into) if link in lane.links))
        points = [(start_x, start_y), (lane_x, start_y), (lane_x, plus), (end_x - _RADIUS, plus)]
        self.pen.line("residual", points, "residual stream", arrow=True)

    @property
    def depth(self) -> int:
        return max(lane.number + 1 for lane in self.size.rounds)

    def place(self, child: int) -> tuple[Row, float, Cell]:
        """The row of a child, where the gap above the row begins, and the child's cell."""
        for row, top in zip(self.size.rows, self.tops, strict=False):
            for cell in row.cells:
                if cell.child == child:
                    return row, top, cell
        raise KeyError(child)

    def gap(self, child: int) -> Gap:
        return self.size.end if child == INSIDE else self.place(child)[0].gap

    def leaves(self, child: int) -> Point:
        """Where the line from a child, or from the frame's input, begins."""
        if child == INSIDE:
            return self.x, self.tops[0]
        row, top, cell = self.place(child)
        size = self.size.children[child]
        box = top + row.gap.height + row.entry
        return self.x + cell.offset, box + size.height - size.shadow

    def branch(self, child: int) -> float:
        """The height at which lines that go aside leave what comes from a child."""
        if child == INSIDE:
            return self.tops[0] + BRANCH / 2
        row, top, _ = self.place(child)
        return top + row.height + BRANCH / 2

    def arrives(self, child: int) -> tuple[float, float, float]:
        """The axis of a child, where the gap above it begins, and where a line to it ends."""
        if child == INSIDE:
            return self.x, self.tops[-1], self.tops[-1] + self.size.end.height
        row, top, cell = self.place(child)
        return self.x + cell.offset, top, top + row.gap.height + row.entry

    def pluses(self, child: int) -> int:
        return sum(lane.links[0].target == child for lane in self.size.rounds)

    def plus_y(self, row: Row, top: float, place: int) -> float:
        return top + row.height - row.plus + PLUS * (place + 0.5)

    def plus(self, x: float, y: float) -> None:
        group = self.pen.group("plus", "added to the residual stream")
        group.circle("box", x, y, _RADIUS)
        group.line("sum", [(x - 5, y), (x + 5, y)])
        group.line("sum", [(x, y - 5), (x, y + 5)])
