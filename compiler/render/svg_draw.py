"""Draws measured blocks and frames; lines first, so that what they lead to lies above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .svg_head import Line
from .svg_items import Block, Frame
from .svg_lines import draw_lines
from .svg_pen import Pen
from .svg_sizes import MARK, PAD, Size, head_clear, head_height, mark_width
from .svg_text import STYLES, clean

SIGNS = {
    "added": "+ added",
    "removed": "- removed",
    "replaced": "~ replaced",
    "changed": "~ changed",
}


@dataclass(frozen=True)
class Drawing:
    """`changes`: the kind of change by the path of a part."""

    changes: Mapping[str, str]

    def draw(self, pen: Pen, size: Size, x: float, y: float) -> None:
        """A block or a frame with its axis at x and its top at y, and all in it."""
        block = size.block
        change = self.change(block)
        kind = "frame" if isinstance(block, Frame) else "block"
        if block.kind == "model":
            group = pen
        else:
            classes = f"{kind} kind-{_known(block.kind)}" + (f" is-{change}" if change else "")
            path = {"data-path": clean(block.paths[0])} if len(block.paths) == 1 else {}
            group = pen.group(classes, block.about, **path)
            self._boxes(group, size, x, y)
            if change:
                self._sign(group, change, x - size.left, y)
        if isinstance(block, Frame):
            self._frame(group, size, x, y)
        else:
            self._block(group, size, x, y)

    def change(self, block: Block) -> str:
        """What is said of a block by its paths; of one without children also by what is below."""
        found = {self.changes[path] for path in block.paths if path in self.changes}
        if not isinstance(block, Frame):
            below = tuple(f"{path}." for path in block.paths if path)
            if any(path.startswith(below) for path in self.changes):
                found.add("changed")
        return found.pop() if len(found) == 1 else "changed" if found else ""

    def _boxes(self, pen: Pen, size: Size, x: float, y: float) -> None:
        width = size.left + size.right - size.shadow
        height = size.height - size.shadow
        for away in (size.shadow, size.shadow / 2) if size.shadow else ():
            pen.box("box behind", x - size.left + away, y + away, width, height, 8)
        pen.box("box", x - size.left, y, width, height, 8)

    def _sign(self, pen: Pen, change: str, x: float, y: float) -> None:
        text = SIGNS[change]
        style = STYLES["sign"]
        pen.box("tag", x + 8, y - 13, style.width(text) + 8, 15, 3)
        pen.text("sign", x + 12, y - 13 + 11, text)

    def _block(self, pen: Pen, size: Size, x: float, y: float) -> None:
        block = size.block
        marks = block.marks.during
        height = size.height - size.shadow
        free = height - head_height(size.head) - MARK * len(marks)
        left, right = x - size.left + PAD, x + size.right - size.shadow - PAD
        self._head(pen, size.head, left, right, y + free / 2)
        for i, mark in enumerate(marks):
            draw_mark(pen, mark, x, y + height - free / 2 - MARK * (len(marks) - i) + 4)

    def _frame(self, pen: Pen, size: Size, x: float, y: float) -> None:
        pad = 0 if size.block.kind == "model" else PAD
        left, right = x - size.left + pad, x + size.right - size.shadow - pad
        self._head(pen, size.head, left, right, y + 6)
        if pad and head_clear(size):
            pen.line("flow", [(x, y), (x, y + head_height(size.head) + 8)])
        y += head_height(size.head) + 8
        tops: list[float] = []
        for row in size.rows:
            tops.append(y)
            y += row.height
        tops.append(y)
        draw_lines(pen, size, x, tops)
        for row, top in zip(size.rows, tops, strict=False):
            box = top + row.gap.height + row.entry
            for cell in row.cells:
                child = size.children[cell.child]
                self.draw(pen, child, x + cell.offset, box)
                marks = child.block.marks
                for i, mark in enumerate(marks.entry):
                    draw_mark(pen, mark, x + cell.offset, box - MARK * (len(marks.entry) - i))
                for i, mark in enumerate(marks.exit):
                    draw_mark(pen, mark, x + cell.offset, box + row.box + 6 + MARK * i)

    def _head(self, pen: Pen, lines: Sequence[Line], left: float, right: float, y: float) -> None:
        for line in lines:
            base = y + 0.75 * line.height
            pen.text(line.left_style, left, base, line.left)
            pen.text(line.right_style, right, base, line.right, "end")
            y += line.height


def draw_mark(pen: Pen, text: str, x: float, y: float) -> None:
    """A collective, on the line that it interrupts."""
    width = mark_width(text)
    pen.box("pill", x - width / 2, y, width, 18, 9)
    pen.text("mark", x, y + 12.5, text, "middle")


def _known(kind: str) -> str:
    """A class of the stylesheet."""
    known = (
        "attention",
        "mixer",
        "mlp",
        "norm",
        "linear",
        "embedding",
        "output",
        "layer",
        "router",
    )
    return kind if kind in (*known, "stack", "period", "more") else "module"
