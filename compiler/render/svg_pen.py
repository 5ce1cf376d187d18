"""Elements of an SVG, one call each; what is text is escaped by ElementTree."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

Point = tuple[float, float]


def number(value: float) -> str:
    """A tenth of a pixel is enough, and no `-0`."""
    return f"{round(value, 1) + 0:g}"


@dataclass(frozen=True)
class Pen:
    """Draws into an element; `group` gives the pen of a group in it."""

    element: ET.Element

    def group(self, classes: str, title: str = "", **attributes: str) -> Pen:
        """A <g>; `title` is what a reader sees who points at it."""
        group = ET.SubElement(self.element, "g", {"class": classes, **attributes})
        if title:
            ET.SubElement(group, "title").text = title
        return Pen(group)

    def box(
        self, classes: str, x: float, y: float, width: float, height: float, round_: float
    ) -> None:
        places = {"x": x, "y": y, "width": width, "height": height, "rx": round_}
        self._add("rect", classes, **places)

    def circle(self, classes: str, x: float, y: float, radius: float) -> None:
        self._add("circle", classes, cx=x, cy=y, r=radius)

    def text(self, classes: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """`y` is the baseline; `anchor` start, middle or end, of the text at x."""
        if not text:
            return
        element = self._add("text", classes, x=x, y=y)
        if anchor != "start":
            element.set("text-anchor", anchor)
        element.text = text

    def line(self, classes: str, points: list[Point], title: str = "", arrow: bool = False) -> None:
        """A line through points, its corners round; with an arrow's head at its end."""
        points = [p for i, p in enumerate(points) if i == 0 or p != points[i - 1]]
        pen = self.group(classes, title)
        pen._add("path", "line").set("d", _rounded(points))
        if arrow:
            pen._add("path", "head").set("d", _head(points[-2], points[-1]))

    def _add(self, tag: str, classes: str, **places: float) -> ET.Element:
        attributes = {"class": classes, **{name: number(v) for name, v in places.items()}}
        return ET.SubElement(self.element, tag, attributes)


def _rounded(points: list[Point], radius: float = 8) -> str:
    parts = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        a, b = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{number(a[0])} {number(a[1])}")
        parts.append(f"Q{number(corner[0])} {number(corner[1])} {number(b[0])} {number(b[1])}")
    parts.append(f"L{number(points[-1][0])} {number(points[-1][1])}")
    return "".join(parts)


def _towards(start: Point, end: Point, distance: float) -> Point:
    """So far from a point towards another, half the way at most."""
    length = abs(end[0] - start[0]) + abs(end[1] - start[1])  # lines are level or upright
    share = min(distance, length / 2) / length if length else 0
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _head(before: Point, tip: Point, size: float = 6) -> str:
    dx = (tip[0] > before[0]) - (tip[0] < before[0])
    dy = (tip[1] > before[1]) - (tip[1] < before[1])
    corners = [
        tip,
        (tip[0] - size * dx - size * dy / 2, tip[1] - size * dy - size * dx / 2),
        (tip[0] - size * dx + size * dy / 2, tip[1] - size * dy + size * dx / 2),
    ]
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "Z"
