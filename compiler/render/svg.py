"""An architecture as a drawing: one SVG file that needs nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

from specc.runtime.layouts import Degrees

from ..architecture.tree import Architecture
from .svg_collectives import legend
from .svg_describe import describe
from .svg_draw import Drawing
from .svg_items import Block, Frame
from .svg_outline import outline
from .svg_pen import Pen, number
from .svg_sizes import Size, size
from .svg_text import STYLES

_MARGIN = 16
_CSS = Path(__file__).with_name("svg.css")


def svg(
    architecture: Architecture,
    *,
    layout: Degrees | None = None,
    changes: Mapping[str, str] | None = None,
    identity: str = "drawing",
) -> str:
    """The drawing as text, the same bytes for the same architecture.

    - `layout`: marks the collectives of a forward at these degrees.
    - `changes`: parts to mark, by their paths: "added", "removed", "replaced", "changed".
    - `identity`: what its ids begin with, where several stand in one page.
    """
    whole = outline(architecture, layout)
    measured = size(whole)
    below = _below(whole, measured, layout)
    style = STYLES["legend"]
    width = measured.left + measured.right + 2 * _MARGIN
    height = measured.height + 2 * _MARGIN + style.line * len(below)
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "specc-drawing",
            "viewBox": f"0 0 {number(width)} {number(height)}",
            "width": number(width),
            "height": number(height),
            "role": "img",
            "aria-labelledby": f"{identity}-title {identity}-desc",
        },
    )
    ET.SubElement(root, "title", id=f"{identity}-title").text = f"Architecture of {whole.title}"
    ET.SubElement(root, "desc", id=f"{identity}-desc").text = describe(whole)
    ET.SubElement(root, "style").text = _style()
    pen = Pen(root)
    pen.box("paper", 0, 0, width, height, 0)
    Drawing(changes or {}).draw(pen, measured, _MARGIN + measured.left, _MARGIN)
    for i, line in enumerate(below):
        base = height - _MARGIN - style.line * (len(below) - i - 1)
        pen.text("legend", _MARGIN, base, line)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _below(whole: Frame, measured: Size, layout: Degrees | None) -> list[str]:
    """The lines below the drawing."""
    if layout is None:
        return []
    found = [block.marks for block in whole.walk() if type(block) is Block]
    marked = {text for marks in found for text in (*marks.entry, *marks.during, *marks.exit)}
    room = measured.left + measured.right
    texts = legend(layout, marked)
    return ["", *(line for text in texts for line in STYLES["legend"].wrap(text, room))]


def _style() -> str:
    fonts = "\n".join(f".specc-drawing .{name} {{ {s.css} }}" for name, s in STYLES.items())
    # An element's text is escaped, and a stylesheet inside HTML's SVG is read back: `>` is safe.
    return f"\n{fonts}\n{_CSS.read_text(encoding='utf-8')}"
