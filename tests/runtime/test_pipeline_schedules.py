"""Schedules are whole, meet on both sides of each pair of ranks, and idle as their papers say."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specc.runtime.pipeline_schedules import (
    COMPUTING,
    SCHEDULES,
    SPLIT,
    Action,
    Kind,
    Plan,
    chunks,
    forward_plan,
    needs,
    plan,
    seats,
    with_transfers,
)
from specc.runtime.pipeline_simulation import Costs, play

F, B, W = 1.0, 1.25, 0.5  # of a rank: forward, backward for inputs, backward for weights
COSTS = Costs(forward=F, input=B, weight=W)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(schedule: str, ranks: int) -> None:
    """(p - 1)(F + B): GPipe's and PipeDream-flush's, Narayanan et al. (arXiv 2104.04473), 2.2.1."""
    for micro_batches in (1, 3, 8, 32):
        played = play(plan(schedule, ranks, micro_batches), COSTS)
        assert played.bubble == pytest.approx((ranks - 1) * (F + B + W))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("per_rank", [2, 3, 4])
def test_bubble_of_interleaved(ranks: int, per_rank: int) -> None:
    """(p - 1)(F + B) / v, the same paper's 2.2.2."""
    for rounds in (1, 2, 5):
        played = play(plan("interleaved", ranks, rounds * ranks, per_rank), COSTS)
        assert played.bubble == pytest.approx((ranks - 1) * (F + B + W) / per_rank)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_zbv_never_waits_where_its_passes_cost_the_same(ranks: int) -> None:
    """Qi et al. (arXiv 2401.10241), 5: zero bubble from 2 p micro-batches on, between a rank's
    first pass and its last; and no more activations than 1F1B keeps on its first rank."""
    for micro_batches in (2 * ranks, 3 * ranks, 5 * ranks + 1):
        played = play(plan("zbv", ranks, micro_batches))
        assert max(played.gaps) == 0
        assert max(played.kept) == 2 * ranks  # half a stage's each


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_bubble_of_dualpipev(ranks: int) -> None:
    """(pp / 2 - 1)(F&B + B - 3 W) where pp counts stages, B is a whole backward and F&B a forward
    and a backward that are one: the table of github.com/deepseek-ai/DualPipe. It keeps pp + 1."""
    for micro_batches in (2 * ranks, 4 * ranks, 6 * ranks):
        chosen = plan("dualpipev", ranks, micro_batches)
        played = play(chosen, together=True)
        f, b, w = 0.5, 1.0, 0.5  # of a stage, half a rank's
        assert played.bubble == pytest.approx((ranks - 1) * ((f + b) + b - 3 * w))
        assert max(played.kept) == 2 * ranks + 1
        # As it is run here, results leave between the two: half of that.
        assert play(chosen).bubble == pytest.approx((ranks - 1) * f)


def test_1f1b_keeps_few_micro_batches_and_gpipe_all() -> None:
    assert play(plan("1f1b", 4, 12)).kept == (4, 3, 2, 1)
    assert play(plan("gpipe", 4, 12)).kept == (12,) * 4


def test_sending_makes_a_step_longer() -> None:
    chosen = plan("1f1b", 4, 8)
    assert play(chosen, Costs(send=0.1)).length > play(chosen).length


@st.composite
def plans(draw: st.DrawFn) -> tuple[str, int, int, Plan]:
    schedule = draw(st.sampled_from(SCHEDULES))
    ranks = draw(st.integers(1, 6))
    per_rank = draw(st.integers(2, 4)) if schedule == "interleaved" else None
    micro_batches = draw(st.integers(1, 14))
    if schedule == "interleaved":
        micro_batches *= ranks
    if schedule == "dualpipev":
        micro_batches += 2 * ranks - 1
    return schedule, ranks, micro_batches, plan(schedule, ranks, micro_batches, per_rank)


@given(plans())
def test_every_stage_runs_every_micro_batch_once(
    case: tuple[str, int, int, Plan],
) -> None:
    schedule, ranks, micro_batches, chosen = case
    assert len(chosen.orders) == ranks
    done = Counter(action for order in chosen.orders for action in order)
    assert set(done.values()) == {1}
    for stage, seat in enumerate(chosen.seats):
        for number in range(micro_batches):
            assert Action(Kind.FORWARD, stage, number) in chosen.orders[seat]
            whole = Action(Kind.BACKWARD, stage, number) in done
            halves = [Action(kind, stage, number) in done for kind in (Kind.INPUT, Kind.WEIGHT)]
            assert halves == [not whole] * 2
            assert whole or schedule in SPLIT
    computing = sum(1 for action in done if action.kind in COMPUTING)
    assert computing == sum(
        2 + (Action(Kind.INPUT, stage, n) in done)
        for stage in range(chosen.stages)
        for n in range(micro_batches)
    )


@given(plans())
def test_ranks_meet_in_one_order(case: tuple[str, int, int, Plan]) -> None:
    """Of any two ranks, what one sends and receives the other receives and sends, in this order:
    one after the other, each waiting for the other side, nothing hangs. And what an action reads
    has come before it."""
    _, ranks, _, chosen = case
    pointers = [0] * ranks
    there: set[tuple[str, int, int]] = set()
    left = sum(map(len, chosen.orders))
    while left:
        before = left
        for rank, order in enumerate(chosen.orders):
            while pointers[rank] < len(order):
                action = order[pointers[rank]]
                if action.kind in COMPUTING:
                    local = needs(action, chosen.stages)
                    assert all(
                        need in there
                        for need in local
                        if chosen.seats[need[1]] == rank or (*need, rank) in there
                    )
                    if action.kind is Kind.FORWARD:
                        there.add(("hidden", action.stage, action.micro_batch))
                    elif action.kind is not Kind.WEIGHT:
                        there.add(("gradient", action.stage, action.micro_batch))
                    pointers[rank] += 1
                    left -= 1
                    continue
                partner, other = _partner(action, chosen)
                if (
                    pointers[other] >= len(chosen.orders[other])
                    or chosen.orders[other][pointers[other]] != partner
                ):
                    break
                pointers[rank] += 1
                pointers[other] += 1
                left -= 2
        assert left < before, "two ranks wait for each other"


def _partner(action: Action, chosen: Plan) -> tuple[Action, int]:
    kind, step = {
        Kind.SEND_HIDDEN: (Kind.RECEIVE_HIDDEN, 1),
        Kind.RECEIVE_HIDDEN: (Kind.SEND_HIDDEN, -1),
        Kind.SEND_GRADIENT: (Kind.RECEIVE_GRADIENT, -1),
        Kind.RECEIVE_GRADIENT: (Kind.SEND_GRADIENT, 1),
    }[action.kind]
    stage = action.stage + step
    return Action(kind, stage, action.micro_batch), chosen.seats[stage]


def test_stages_go_round_or_there_and_back() -> None:
    assert seats("1f1b", 3) == (0, 1, 2)
    assert seats("interleaved", 3, 2) == (0, 1, 2, 0, 1, 2)
    assert seats("zbv", 3) == seats("dualpipev", 3) == (0, 1, 2, 2, 1, 0)


def test_an_evaluation_runs_forwards_only() -> None:
    for schedule in SCHEDULES:
        chosen = forward_plan(seats(schedule, 2), 3)
        kinds = {action.kind for order in chosen.orders for action in order}
        assert kinds == {Kind.FORWARD, Kind.SEND_HIDDEN, Kind.RECEIVE_HIDDEN}
    assert max(play(forward_plan(seats("1f1b", 4), 8)).gaps) == 0


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("1f2b", 2, 4, None), "'1f2b' is not one of gpipe, 1f1b, interleaved, zbv, dualpipev"),
        (("1f1b", 2, 4, 2), "1f1b has 1 on a rank, and 2 stages are asked for"),
        (("zbv", 2, 4, 3), "zbv has 2 on a rank, and 3"),
        (("interleaved", 2, 4, 1), "with one it is 1f1b"),
        (("interleaved", 4, 6, 2), "rounds of pp=4, and 6 of a step are no multiple"),
        (("dualpipev", 4, 7, None), "each of its 8 stages, and a step has 7"),
        (("gpipe", 4, 0, None), "a step has 0 micro-batches"),
    ],
)
def test_refusals(asked: tuple[str, int, int, int | None], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan(*asked)


def test_an_order_that_waits_for_itself_is_refused() -> None:
    order = [Action(Kind.BACKWARD, 0, 0), Action(Kind.FORWARD, 0, 0)]
    with pytest.raises(ValueError, match="never comes to 0B0"):
        with_transfers([order], (0,))


def test_the_usual_number_of_stages() -> None:
    assert [chunks(schedule) for schedule in SCHEDULES] == [1, 1, 2, 2, 2]
