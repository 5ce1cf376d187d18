"""Which rank a run waits for, as the beats of all say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

STARTING = "start-up"


@dataclass(frozen=True)
class Beat:
    """What a rank says of itself.

    ``count`` grows while it lives; ``marks`` while its program gets on, by the same numbers on
    every rank. ``word`` is its last: "raised" (``order``: how many had raised then), "gave up" or
    "done". ``at`` is its wall clock, for the message alone.
    """

    count: int = 0
    at: float = 0.0
    where: str = STARTING
    marks: int = 0
    word: str = ""
    order: int = 0
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    """Which ranks the others wait for, and that in words."""

    ranks: tuple[int, ...]
    text: str
    everyone_lives: bool = False


def judge(before: Sequence[Beat], after: Sequence[Beat], now: float, reader: int) -> Verdict:
    """What two readings of all beats say, some beats apart; ``reader`` took them, so it lives."""
    lost = [
        rank
        for rank, (first, second) in enumerate(zip(before, after, strict=True))
        if rank != reader and not second.word and second.count == first.count
    ]
    if lost:
        return Verdict(tuple(lost), _listed(lost, lambda rank: _silence(after[rank], now)))
    raised = [rank for rank, beat in enumerate(after) if beat.word == "raised"]
    if raised:
        first = min(raised, key=lambda rank: after[rank].order)
        return Verdict(
            (first,), f"rank {first} failed in {after[first].where}: {after[first].error}"
        )
    marks = [beat.marks for beat in after]
    if min(marks) == max(marks):
        told = f"all {len(after)} ranks live and none gets further than {after[0].where}"
        return Verdict((), told, True)
    behind = [rank for rank, count in enumerate(marks) if count == min(marks)]
    told = _listed(behind, lambda rank: f"lives and is still in {after[rank].where}")
    furthest = after[marks.index(max(marks))].where
    return Verdict(tuple(behind), f"{told}; the furthest is in {furthest}", True)


def _silence(beat: Beat, now: float) -> str:
    if not beat.count:
        return "has never been heard of"
    return f"has not been heard of for {max(0.0, now - beat.at):.0f} s; it was in {beat.where}"


def _listed(ranks: Sequence[int], told: Callable[[int], str]) -> str:
    more = f"; and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return "; ".join(f"rank {rank} {told(rank)}" for rank in ranks[:4]) + more
