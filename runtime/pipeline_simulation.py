"""A schedule played through by the clock: how long ranks idle, how much they keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .pipeline_schedules import COMPUTING, Action, Kind, Plan, gives, needs


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
    rank, how much of it computes nothing; ``gaps``: of that, what lies between its first action and
    its last; ``kept``: the most activations that a rank has at a time, a micro-batch's of one stage
    counted as one."""

    length: float
    idle: tuple[float, ...]
    gaps: tuple[float, ...]
    kept: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """The idle time of the rank that idles most."""
        return max(self.idle)


def play(plan: Plan, costs: Costs = Costs(), *, together: bool = False) -> Played:
    """Each rank does its actions in order, each as soon as what it needs is there.

    ``together``: a pair that is meant to overlap gives both its results at its end, as where their
    kernels are mixed; otherwise it is a forward and then a backward, as this runtime runs it.
    """
    ranks = len(plan.orders)
    ready: dict[tuple[str, int, int], float] = {}
    begun: list[float | None] = [None] * ranks
    clock, busy = [0.0] * ranks, [0.0] * ranks
    rest = [_blocks(plan, rank, together)[::-1] for rank in range(ranks)]
    while any(rest):
        for rank, waiting in enumerate(rest):
            while waiting and (needed := _needed(waiting[-1], plan)) <= ready.keys():
                block = waiting.pop()
                begin = clock[rank]
                for need in needed:
                    away = plan.seats[need[1]] != rank
                    begin = max(begin, ready[need] + (costs.send if away else 0.0))
                cost = sum(costs.of(action.kind) for action in block) * ranks / plan.stages
                begun[rank] = begin if begun[rank] is None else begun[rank]
                clock[rank] = begin + cost
                busy[rank] += cost
                ready |= {made: clock[rank] for a in block if (made := gives(a)) is not None}
    length = max(clock)
    return Played(
        length,
        tuple(length - own for own in busy),
        tuple(
            end - (start or 0.0) - own for end, start, own in zip(clock, begun, busy, strict=True)
        ),
        tuple(_kept(order) for order in plan.orders),
    )


def _blocks(plan: Plan, rank: int, together: bool) -> list[tuple[Action, ...]]:
    blocks: list[tuple[Action, ...]] = []
    for action in plan.orders[rank]:
        if action.kind not in COMPUTING:
            continue
        if together and blocks and (blocks[-1][-1], action) in plan.pairs:
            blocks[-1] += (action,)
        else:
            blocks.append((action,))
    return blocks


def _needed(block: tuple[Action, ...], plan: Plan) -> set[tuple[str, int, int]]:
    """What a block reads that it does not make."""
    made = {gives(action) for action in block}
    return {need for action in block for need in needs(action, plan.stages) if need not in made}


def _kept(order: Iterable[Action]) -> int:
    kept = most = 0
    for action in order:
        kept += {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.WEIGHT: -1}.get(action.kind, 0)
        most = max(most, kept)
    return most
