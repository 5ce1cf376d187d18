"""A part's segment of a path, short enough to read."""

from __future__ import annotations

_LONGEST = 32  # letters of a list with its places


def shortened(segment: str) -> str:
    """`layers[0..4,6..10,…]` where so many places are no help."""
    if "," not in segment or len(segment) <= _LONGEST:
        return segment
    return f"{segment[:_LONGEST].rpartition(',')[0]},…]"
