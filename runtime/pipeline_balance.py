"""How many layers each stage of a pipeline gets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache


def by_hand(asked: Sequence[int], layers: int, stages: int) -> tuple[int, ...]:
    """``asked`` itself. Raises ValueError where it is not one number for each stage that sum to
    the layers that there are."""
    if len(asked) != stages:
        raise ValueError(
            f"layers per stage {','.join(map(str, asked))} are {len(asked)} numbers for {stages} "
            "stages"
        )
    if min(asked) < 0 or sum(asked) != layers:
        raise ValueError(
            f"layers per stage {','.join(map(str, asked))} sum to {sum(asked)}, and there are "
            f"{layers} layers"
        )
    return tuple(asked)


def by_cost(
    costs: Sequence[float], stages: int, first: float = 0.0, last: float = 0.0
) -> tuple[int, ...]:
    """The contiguous parts of layers of these ``costs`` whose dearest stage is cheapest.

    ``first`` and ``last``: what the first stage and the last have to do besides. Of equally good
    cuts the evenest one (least sum of squares), then that with more layers at the front. Every
    stage gets a layer: raises ValueError where there are fewer layers than stages.
    """
    count = len(costs)
    if count < stages:
        raise ValueError(f"{stages} stages share out {count} layers, and each needs one at least")
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)

    def price(stage: int, start: int, end: int) -> float:
        more = (first if stage == 0 else 0.0) + (last if stage == stages - 1 else 0.0)
        return sums[end] - sums[start] + more

    def ends(stage: int, start: int) -> Sequence[int]:
        """Where a stage that begins at ``start`` may end, the longest first."""
        after = stages - 1 - stage
        return range(count - after, start, -1) if after else (count,)

    @cache
    def dearest(stage: int, start: int) -> float:
        if stage == stages:
            return 0.0
        return min(
            max(price(stage, start, end), dearest(stage + 1, end)) for end in ends(stage, start)
        )

    limit = dearest(0, 0) * (1 + 1e-9)

    @cache
    def evenest(stage: int, start: int) -> tuple[float, tuple[int, ...]]:
        if stage == stages:
            return 0.0, ()
        best: tuple[float, tuple[int, ...]] = (float("inf"), ())
        for end in ends(stage, start):
            own = price(stage, start, end)
            if own > limit:
                continue
            rest, counts = evenest(stage + 1, end)
            if own**2 + rest < best[0] * (1 - 1e-9):
                best = (own**2 + rest, (end - start, *counts))
        return best

    return evenest(0, 0)[1]
