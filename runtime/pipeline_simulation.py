"""A schedule played through by the clock: how long ranks idle, how much they keep."""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline_schedules import COMPUTING, Kind, Plan, gives, needs


@dataclass(frozen=True)
class Costs:
    """How long a stage of a rank with one stage takes; several on a rank share it out evenly.

    ``input`` and ``weight`` are the two halves of a backward. Sending takes ``send``.
    """

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0
    send: float = 0.0

    def of(self, kind: Kind) -> float:
        """Of a computing action."""
        return {
            Kind.FORWARD: self.forward,
            Kind.INPUT: self.input,
            Kind.WEIGHT: self.weight,
            Kind.BACKWARD: self.input + self.weight,
        }[kind]


@dataclass(frozen=True)
class Played:
    """``length`` of a step from the first action's start to the last one's end; ``idle``: for each
    rank, how much of it computes nothing; ``kept``: the most micro-batches of one stage whose
    activations a rank has at a time, summed over its stages."""

    length: float
    idle: tuple[float, ...]
    kept: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """The idle time of the rank that idles most."""
        return max(self.idle)


def play(plan: Plan, costs: Costs = Costs()) -> Played:
    """Each rank does its actions in order, each as soon as what it needs is there."""
    ranks = len(plan.orders)
    share = ranks / plan.stages
    ready: dict[tuple[str, int, int], float] = {}
    clock, busy = [0.0] * ranks, [0.0] * ranks
    kept, most = [0] * ranks, [0] * ranks
    rest = [[a for a in order if a.kind in COMPUTING][::-1] for order in plan.orders]
    while any(rest):
        for rank, waiting in enumerate(rest):
            while waiting and all(need in ready for need in needs(waiting[-1], plan.stages)):
                action = waiting.pop()
                begin = clock[rank]
                for need in needs(action, plan.stages):
                    away = plan.seats[need[1]] != rank
                    begin = max(begin, ready[need] + (costs.send if away else 0.0))
                cost = costs.of(action.kind) * share
                clock[rank] = begin + cost
                busy[rank] += cost
                made = gives(action)
                if made is not None:
                    ready[made] = clock[rank]
                kept[rank] += {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.WEIGHT: -1}.get(
                    action.kind, 0
                )
                most[rank] = max(most[rank], kept[rank])
    length = max(clock)
    return Played(length, tuple(length - own for own in busy), tuple(most))
