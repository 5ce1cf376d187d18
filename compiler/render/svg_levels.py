"""Where the children of a frame stand: a row for each step, and lanes for what goes round rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .svg_items import INSIDE, Link

_ABREAST = 3  # blocks in a row; more go into a row of their own


def rows(count: int, links: Sequence[Link]) -> list[list[int]]:
    """The children in rows, each below all that it takes from; those that nothing links stand in
    rows of their own, in order.
    """
    if not links:
        return [[child] for child in range(count)]
    forward = _without_cycles(count, links)
    level = [0] * count
    for _ in range(count):
        moved = False
        for link in forward:
            if level[link.target] <= level[link.source]:
                level[link.target] = level[link.source] + 1
                moved = True
        if not moved:
            break
    linked = {end for link in links for end in (link.source, link.target)}
    found: list[list[int]] = []
    for depth in range(max(level, default=0) + 1):
        row = [child for child in range(count) if child in linked and level[child] == depth]
        found += [row[i : i + _ABREAST] for i in range(0, len(row), _ABREAST)]
    return found + [[child] for child in range(count) if child not in linked]


def _without_cycles(count: int, links: Sequence[Link]) -> list[Link]:
    """Links between children, but for those that lead back."""
    outgoing: dict[int, list[Link]] = {}
    for link in links:
        if INSIDE not in (link.source, link.target) and link.source != link.target:
            outgoing.setdefault(link.source, []).append(link)
    kept: list[Link] = []
    done: set[int] = set()
    for start in range(count):
        stack = [(start, iter(outgoing.get(start, ())))] if start not in done else []
        open_ = {start}
        while stack:
            child, left = stack[-1]
            onward = next(left, None)
            if onward is None:
                stack.pop()
                open_.discard(child)
                done.add(child)
            elif onward.target not in open_:
                kept.append(onward)
                if onward.target not in done:
                    stack.append((onward.target, iter(outgoing.get(onward.target, ()))))
                    open_.add(onward.target)
    return kept


@dataclass(frozen=True)
class Lane:
    """A line beside the rows, from the gap above row `start` to the one above row `end`."""

    number: int
    links: tuple[Link, ...]
    start: int
    end: int


def lanes(spans: Iterable[tuple[int, int, tuple[Link, ...]]]) -> list[Lane]:
    """Lanes for spans of rows, the short ones nearest to the rows."""
    taken: list[list[tuple[int, int]]] = []
    found: list[Lane] = []
    for start, end, links in sorted(spans, key=lambda span: (span[1] - span[0], span[0])):
        number = 0
        while number < len(taken) and any(
            start <= other_end and other_start <= end for other_start, other_end in taken[number]
        ):
            number += 1
        if number == len(taken):
            taken.append([])
        taken[number].append((start, end))
        found.append(Lane(number, links, start, end))
    return found
