"""Layers that differ in words and numbers alone, as one: what 1,000 unlike layers are drawn by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .svg_items import Block, Frame

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
_LISTED = 3  # unlike words that are written out


def shape(block: Block) -> tuple[object, ...]:
    """Equal for drawings that differ in words and numbers only."""
    if not isinstance(block, Frame):
        return (block.kind, block.times > 1)
    links = tuple((link.source, link.target, link.residual) for link in block.links)
    return (block.kind, block.times > 1, links, tuple(map(shape, block.children)))


def joined(blocks: Sequence[Block]) -> Block:
    """Drawings of one shape as one, with ranges where numbers differ."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    one = replace(
        first,
        title=_joined([block.title for block in blocks]),
        words=_joined([block.words for block in blocks]),
        name=_joined([block.name for block in blocks]),
        parameters=(
            min(block.parameters[0] for block in blocks),
            max(block.parameters[1] for block in blocks),
        ),
        paths=tuple(path for block in blocks for path in block.paths),
    )
    if not isinstance(one, Frame):
        return one
    rows = zip(*(frame.children for frame in blocks if isinstance(frame, Frame)), strict=True)
    return replace(one, children=tuple(map(joined, rows)))


def _joined(texts: Sequence[str]) -> str:
    """`SwiGLU 1024`, `SwiGLU 2048` as `SwiGLU 1024–2048`; unlike words one after another."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == 1:
        return distinct[0]
    if len({_NUMBER.sub("#", text) for text in distinct}) > 1:
        more = len(distinct) - _LISTED
        return " or ".join([*distinct[:_LISTED], *([f"{more} others"] if more > 0 else [])])
    columns = zip(*(_NUMBER.findall(text) for text in distinct), strict=True)
    spans = iter([_span(column) for column in columns])
    return _NUMBER.sub(lambda _: next(spans), distinct[0])


def _span(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=_value), max(numbers, key=_value)
    return low if low == high else f"{low}–{high}"


def _value(text: str) -> float:
    return float(text.replace(",", ""))
