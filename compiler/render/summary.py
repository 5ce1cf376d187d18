"""How much of two models is the same, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from ..architecture.difference import Change, Difference
from .told import Told

SAME = "the same architecture"


@dataclass(frozen=True)
class Summary:
    """How many parts of the later model are as before, differ in sizes alone that follow from
    others, or differ otherwise; and how many of the earlier are gone. A run of equal layers counts
    once, the root not.
    """

    same: int = 0
    sizes: int = 0
    different: int = 0
    removed: int = 0

    def text(self) -> str:
        """`2 of 14 parts are the same, 9 differ only in size`."""
        there = self.same + self.sizes + self.different
        verb = "is" if self.same == 1 else "are"
        found = f"{self.same or 'none'} of {there} parts {verb} the same"
        if self.sizes:
            found += f", {self.sizes} {'differs' if self.sizes == 1 else 'differ'} only in size"
        return found


def summary(difference: Difference) -> Summary:
    """Count the parts of a difference."""
    counts = dict.fromkeys(("same", "sizes", "different", "removed"), 0)

    def count(change: Change, told: Told) -> None:
        below = told.below(change)
        for child in change.children:
            counts[_verdict(child, below)] += 1
            count(child, below)

    count(difference.root, Told.of(difference))
    return Summary(**counts)


def _verdict(change: Change, told: Told) -> str:
    if change.kind in ("same", "removed"):
        return change.kind
    return "sizes" if told.only_sizes(change) else "different"
