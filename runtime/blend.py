"""Several data sets in one stream, each with its share of every prefix."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Sequence
from fractions import Fraction

from .refusal import Refusal

LONGEST_PERIOD = 1_000_000


class Blend:
    """``blend[position]`` is (data set, how many of that set's sequences came before).

    Of the sets that are behind their share, the one comes next that would be the first to fall a
    whole sequence behind. Then, after k sequences, a set of weight w (all weights sum to 1) has
    given fewer than w k + 1 and more than w k - 1, for every k (Tijdeman, "The chairman assignment
    problem", 1980; it is P-fair scheduling on one processor). Megatron's law, the largest deficit
    next, has the same shares in the long run, but falls behind by more than one sequence where
    there are many sets (by 1.6 at weights 40:3:3:1:1:1:1).

    The weights are fractions of whole numbers, so the order repeats after ``period`` sequences: one
    period is kept, and any position is found at once.

    Raises Refusal where a weight is not above 0 or the period is above ``LONGEST_PERIOD``.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        for weight in weights:
            if not (math.isfinite(weight) and weight > 0):
                raise Refusal(f"A data set has weight {weight}; weights are above 0.")
        # A weight is what was typed, not the binary fraction next to it: 0.7 is 7/10.
        exact = [Fraction(str(weight)) for weight in weights]
        parts = [share / sum(exact) for share in exact]
        self.period = math.lcm(*(part.denominator for part in parts))
        if self.period > LONGEST_PERIOD:
            raise Refusal(
                f"The weights {', '.join(map(str, weights))} repeat after {self.period:,} "
                f"sequences, and at most {LONGEST_PERIOD:,} are supported: give fewer digits."
            )
        self.shares = [int(part * self.period) for part in parts]  # of a period
        self._set, self._rank = _one_period(self.shares, self.period)

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, position: int) -> tuple[int, int]:
        turns, place = divmod(position, self.period)
        which = self._set[place]
        return which, turns * self.shares[which] + self._rank[place]

    def whole(self, counts: Sequence[int]) -> int:
        """How many positions there are before one asks set i for more than ``counts[i]``."""
        return min(self._position(which, count) for which, count in enumerate(counts))

    def _position(self, which: int, count: int) -> int:
        """Where sequence ``count`` of a set stands."""
        turns, rank = divmod(count, self.shares[which])
        place = next(
            place
            for place in range(self.period)
            if self._set[place] == which and self._rank[place] == rank
        )
        return turns * self.period + place


def _one_period(shares: Sequence[int], period: int) -> tuple[array[int], array[int]]:
    """The set at each place, and how many of the set came before it.

    Sequence j of a set with ``share`` in a period may not come before place j * period / share
    (rounded down) and has to come before place (j + 1) * period / share (rounded up); the earliest
    of those bounds goes first.
    """
    coming = [(0, which) for which in range(len(shares))]  # places from which a set may give
    waiting: list[tuple[int, int]] = []  # bounds of those that may
    given = [0] * len(shares)
    sets, ranks = array("H"), array("i")
    for place in range(period):
        while coming and coming[0][0] <= place:
            which = heapq.heappop(coming)[1]
            bound = -(-(given[which] + 1) * period // shares[which])
            heapq.heappush(waiting, (bound, which))
        which = heapq.heappop(waiting)[1]
        sets.append(which)
        ranks.append(given[which])
        given[which] += 1
        heapq.heappush(coming, (given[which] * period // shares[which], which))
    return sets, ranks
