"""Who computes what, and when: the schedules of a pipeline as lists of actions, one for each rank.

The interleaved and V-shaped orders are those of ``torch.distributed.pipelining``. Sends and
receives are put in here, so that all that runs on a rank stands in one list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import SimpleNamespace
from typing import Any

from torch import nn

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbv", "dualpipev")
_V = ("zbv", "dualpipev")  # rank r has stages r and 2 pp - 1 - r
SPLIT = _V  # compute the gradients of weights apart from those of inputs


class Kind(Enum):
    """What an action does; the last four are of what lies between two ranks' stages."""

    FORWARD = "F"
    BACKWARD = "B"  # whole
    INPUT = "I"  # of the stage's input only
    WEIGHT = "W"  # what INPUT has left
    SEND_HIDDEN = "send"  # the stage's output
    RECEIVE_HIDDEN = "receive"  # the stage's input
    SEND_GRADIENT = "send gradient"  # of the stage's input
    RECEIVE_GRADIENT = "receive gradient"  # of the stage's output


COMPUTING = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT)


@dataclass(frozen=True)
class Action:
    """Something that the rank of ``stage`` does for a micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.micro_batch}"


Orders = tuple[tuple[Action, ...], ...]  # by rank


@dataclass(frozen=True)
class Plan:
    """A step of a pipeline. ``seats[stage]`` is the rank that has it.

    ``pairs``: a forward and the backward that follows it where the schedule means them to overlap.
    They run one after the other, so that the forward's result leaves before the backward begins.
    """

    seats: tuple[int, ...]
    orders: Orders
    pairs: frozenset[tuple[Action, Action]] = frozenset()

    @property
    def stages(self) -> int:
        return len(self.seats)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank, first to last."""
        return tuple(stage for stage, seat in enumerate(self.seats) if seat == rank)


def chunks(schedule: str, per_rank: int | None = None) -> int:
    """How many stages a rank has; ``per_rank`` is what was asked for, None for the usual number.

    Raises ValueError where the schedule is none, or has another number.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule {schedule!r} is not one of {', '.join(SCHEDULES)}")
    if schedule == "interleaved":
        if per_rank is not None and per_rank < 2:
            raise ValueError(
                f"schedule interleaved has 2 stages or more on a rank, and {per_rank} are asked "
                "for; with one it is 1f1b"
            )
        return per_rank or 2
    own = 2 if schedule in _V else 1
    if per_rank not in (None, own):
        raise ValueError(
            f"schedule {schedule} has {own} on a rank, and {per_rank} stages are asked for; "
            "interleaved takes any number from 2"
        )
    return own


def check(schedule: str, ranks: int, micro_batches: int, per_rank: int | None = None) -> None:
    """Raises ValueError where the schedule does not take so many micro-batches."""
    chunks(schedule, per_rank)
    if micro_batches < 1:
        raise ValueError(f"a step has {micro_batches} micro-batches; it needs 1 at least")
    if schedule == "interleaved" and micro_batches % ranks:
        raise ValueError(
            f"schedule interleaved takes micro-batches in rounds of pp={ranks}, and "
            f"{micro_batches} of a step are no multiple of it"
        )
    if schedule == "dualpipev" and micro_batches < 2 * ranks:
        raise ValueError(
            f"schedule dualpipev needs a micro-batch for each of its {2 * ranks} stages, and a "
            f"step has {micro_batches}"
        )


def seats(schedule: str, ranks: int, per_rank: int | None = None) -> tuple[int, ...]:
    """The rank of each stage: round and round, or there and back (V)."""
    turns = [tuple(range(ranks))] * chunks(schedule, per_rank)
    if schedule in _V:
        turns[1] = turns[0][::-1]
    return tuple(rank for turn in turns for rank in turn)


@cache
def plan(schedule: str, ranks: int, micro_batches: int, per_rank: int | None = None) -> Plan:
    """The actions of a training step on each rank. Raises ValueError as ``check`` does."""
    check(schedule, ranks, micro_batches, per_rank)
    places = seats(schedule, ranks, per_rank)
    if schedule == "gpipe":
        orders = [_gpipe(rank, micro_batches) for rank in range(ranks)]
    elif schedule == "1f1b":
        orders = [_one_f_one_b(rank, ranks, micro_batches) for rank in range(ranks)]
    else:
        blocks = _torch_orders(schedule, ranks, micro_batches, places)
        orders = [[action for block in rank for action in block] for rank in blocks]
        pairs = frozenset((b[0], b[1]) for rank in blocks for b in rank if len(b) == 2)
        return Plan(places, with_transfers(orders, places), pairs)
    return Plan(places, with_transfers(orders, places))


@cache
def forward_plan(seat: tuple[int, ...], micro_batches: int) -> Plan:
    """Forwards only, stage by stage: what an evaluation runs."""
    orders = [
        [
            Action(Kind.FORWARD, stage, number)
            for stage, owner in enumerate(seat)
            if owner == rank
            for number in range(micro_batches)
        ]
        for rank in range(max(seat) + 1)
    ]
    return Plan(seat, with_transfers(orders, seat))


def _gpipe(rank: int, micro_batches: int) -> list[Action]:
    """All forwards, then all backwards (arXiv 1811.06965)."""
    return [
        Action(kind, rank, number)
        for kind in (Kind.FORWARD, Kind.BACKWARD)
        for number in range(micro_batches)
    ]


def _one_f_one_b(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    """As few micro-batches under way as keep the last rank busy (arXiv 1806.03377)."""
    ahead = min(micro_batches, ranks - 1 - rank)
    order = [Action(Kind.FORWARD, rank, number) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            order.append(Action(Kind.FORWARD, rank, ahead + number))
        order.append(Action(Kind.BACKWARD, rank, number))
    return order


def _torch_orders(
    schedule: str, ranks: int, micro_batches: int, places: Sequence[int]
) -> list[list[tuple[Action, ...]]]:
    """Interleaved 1F1B (arXiv 2104.04473), ZB-V (2401.10241), DualPipeV, as torch has them: for
    each rank one action after the other, or two that are meant to overlap.

    The V-shaped two come with one micro-batch for each stage at least: where there are fewer, the
    actions of those that are missing are left out, which keeps the order of the others.
    """
    from torch.distributed.pipelining import schedules

    kind: Any = {
        "interleaved": schedules.ScheduleInterleaved1F1B,
        "zbv": schedules.ScheduleZBVZeroBubble,
        "dualpipev": schedules.ScheduleDualPipeV,
    }[schedule]
    # All that a schedule asks of its stages before it runs. This one never runs.
    stand_ins = [
        SimpleNamespace(
            num_stages=len(places),
            group_size=ranks,
            group_rank=0,
            stage_index=stage,
            submod=nn.Identity(),
        )
        for stage, seat in enumerate(places)
        if seat == 0
    ]
    made = kind(stand_ins, max(micro_batches, len(places) if schedule in _V else 0))
    kinds = {
        schedules.FORWARD: Kind.FORWARD,
        schedules.FULL_BACKWARD: Kind.BACKWARD,
        schedules.BACKWARD_INPUT: Kind.INPUT,
        schedules.BACKWARD_WEIGHT: Kind.WEIGHT,
    }

    def ours(found: Any) -> tuple[Action, ...]:
        if found is None:  # idle
            return ()
        return tuple(
            Action(kinds[part.computation_type], part.stage_index, part.microbatch_index)
            for part in found.sub_actions or (found,)
            if part.microbatch_index < micro_batches
        )

    return [
        [block for block in map(ours, made.pipeline_order[rank]) if block] for rank in range(ranks)
    ]


def with_transfers(orders: Sequence[Sequence[Action]], places: Sequence[int]) -> Orders:
    """``orders`` of computing actions with what has to be sent and received in between.

    The orders are played through: each action where what it reads is there, each send where its
    result is made, and the receive, at the same time, at the end of what its rank has so far. So
    two ranks meet in one order on both sides, and nothing waits for itself. Raises ValueError where
    an action waits for ever.
    """
    lists: list[list[Action]] = [[] for _ in orders]
    rest = [list(reversed(order)) for order in orders]
    there: set[tuple[str, int, int]] = set()
    while any(rest):
        moved = False
        for rank, waiting in enumerate(rest):
            if not waiting or not needs(waiting[-1], len(places)) <= there:
                continue
            moved = True
            action = waiting.pop()
            lists[rank].append(action)
            made = gives(action)
            if made is None:
                continue
            there.add(made)
            to = action.stage + (1 if made[0] == "hidden" else -1)
            if not 0 <= to < len(places) or places[to] == rank:
                continue
            send, receive = _TRANSFERS[made[0]]
            lists[rank].append(Action(send, action.stage, action.micro_batch))
            lists[places[to]].append(Action(receive, to, action.micro_batch))
        if not moved:
            stuck = ", ".join(str(waiting[-1]) for waiting in rest if waiting)
            raise ValueError(f"the schedule never comes to {stuck}")
    return tuple(map(tuple, lists))


_TRANSFERS: Mapping[str, tuple[Kind, Kind]] = {
    "hidden": (Kind.SEND_HIDDEN, Kind.RECEIVE_HIDDEN),
    "gradient": (Kind.SEND_GRADIENT, Kind.RECEIVE_GRADIENT),
}


def gives(action: Action) -> tuple[str, int, int] | None:
    """What comes of a computing action for another: what it is, of which stage and micro-batch."""
    made = {
        Kind.FORWARD: "hidden",
        Kind.BACKWARD: "gradient",
        Kind.INPUT: "gradient",
    }.get(action.kind)
    return None if made is None else (made, action.stage, action.micro_batch)


def needs(action: Action, stages: int) -> set[tuple[str, int, int]]:
    """What has to be there before a computing action."""
    stage, number = action.stage, action.micro_batch
    if action.kind is Kind.FORWARD:
        return {("hidden", stage - 1, number)} if stage else set()
    if action.kind is Kind.WEIGHT:
        return {("gradient", stage, number)}
    own = {("hidden", stage, number)}
    return own if stage == stages - 1 else own | {("gradient", stage + 1, number)}
