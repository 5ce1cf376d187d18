"""A drawing in words, for those who do not see it."""

from __future__ import annotations

from .svg_items import Block, Frame


def describe(frame: Frame) -> str:
    """One sentence for each part, from the input to the output."""
    head = f"{frame.title}, {frame.name}, {frame.count} parameters."
    return " ".join([head, *(f"{_said(child, frame)}." for child in frame.children)])


def _said(block: Block, parent: Frame) -> str:
    times = f"{block.times:,} times " if block.times > 1 else ""
    what = ", ".join(filter(None, (block.title, block.words)))
    if block.marks:
        found = (*block.marks.entry, *block.marks.during, *block.marks.exit)
        what += f" with {', '.join(found)}"
    place = parent.children.index(block)
    if any(link.residual and link.target == place for link in parent.links):
        what += ", added to the residual stream"
    if isinstance(block, Frame):
        return f"{times}{what}: ({'; '.join(_said(child, block) for child in block.children)})"
    return times + what
