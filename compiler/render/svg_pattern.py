"""The order of unlike layers in a stack, as few repeated terms: 26 layers as 4 × (5 A, B), 2 A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 12  # layers in a period; a longer one is no pattern to a reader


@dataclass(frozen=True)
class Term:
    """So many times these runs, each so many layers of one kind."""

    times: int
    runs: tuple[tuple[int, int], ...]

    @property
    def layers(self) -> int:
        return self.times * sum(count for _, count in self.runs)


def terms(kinds: Sequence[int]) -> tuple[Term, ...]:
    """The kinds in their order: at each place the period that covers most, the shortest of them."""
    found: list[Term] = []
    start = 0
    while start < len(kinds):
        best = Term(1, _runs(kinds[start : start + _same(kinds, start, 1)]))
        for period in range(2, _LONGEST + 1):
            times = _same(kinds, start, period) // period
            if times > 1 and times * period > best.layers:
                best = Term(times, _runs(kinds[start : start + period]))
        found.append(best)
        start += best.layers
    return tuple(found)


def _same(kinds: Sequence[int], start: int, period: int) -> int:
    """How many from there on go on with a period."""
    end = min(start + period, len(kinds))
    while end < len(kinds) and kinds[end] == kinds[end - period]:
        end += 1
    return end - start


def _runs(kinds: Sequence[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for kind in kinds:
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    return tuple(runs)
