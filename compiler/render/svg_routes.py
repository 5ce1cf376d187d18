"""Which way each link of a frame goes: to the next row, past rows, or round as a residual."""

from __future__ import annotations

from collections.abc import Sequence

from .svg_items import INSIDE, Link
from .svg_levels import Lane, lanes


def routes(
    links: Sequence[Link], row_of: dict[int, int], count: int
) -> tuple[list[Lane], list[Lane], list[Link]]:
    """Those round the left, those past rows on the right, those from a row to the next."""
    direct: list[Link] = []
    rounds: dict[tuple[int, int], list[Link]] = {}
    long: list[Link] = []
    for link in links:
        source = -1 if link.source == INSIDE else row_of[link.source]
        target = count if link.target == INSIDE else row_of[link.target]
        if link.residual and link.target != INSIDE:
            rounds.setdefault((source, link.target), []).append(link)
        elif target == source + 1 and not link.residual:
            direct.append(link)
        else:
            long.append(link)
    # Lines of one source are one line with many ends, and so are lines to one target.
    leaving = [link.source for link in long]
    arriving = [link.target for link in long]
    buses: dict[tuple[str, int], list[Link]] = {}
    for link in long:
        by_source = leaving.count(link.source) >= arriving.count(link.target)
        key = ("source", link.source) if by_source else ("target", link.target)
        buses.setdefault(key, []).append(link)

    def span(of: Sequence[Link]) -> tuple[int, int]:
        """Places as numbers: the gap above row r is 2 r, the row 2 r + 1."""
        places: list[int] = []
        for link in of:
            places.append(0 if link.source == INSIDE else 2 * row_of[link.source] + 2)
            if link.residual and link.target != INSIDE:
                places.append(2 * row_of[link.target] + 1)
            else:
                places.append(2 * (count if link.target == INSIDE else row_of[link.target]))
        return min(places), max(places)

    return (
        lanes((*span(of), tuple(of)) for of in rounds.values()),
        lanes((*span(of), tuple(of)) for of in buses.values()),
        direct,
    )
