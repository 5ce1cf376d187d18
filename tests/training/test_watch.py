"""What ranks find out about each other: the verdict by itself, and watches that share a store."""

import io
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from specc.runtime import watch
from specc.runtime.verdict import Beat, judge
from specc.runtime.watch import LOST, Watch

LIVES = [Beat(count=3, at=100.0, where="step 7", marks=9), Beat(count=8, where="step 7", marks=9)]


def later(beats: list[Beat], *, stands: int | None = None) -> list[Beat]:
    return [
        beat if rank == stands else replace(beat, count=beat.count + 2)
        for rank, beat in enumerate(beats)
    ]


def test_a_rank_without_beats_is_lost() -> None:
    verdict = judge(LIVES, later(LIVES, stands=0), 131.0, 1)
    assert verdict.ranks == (0,)
    assert verdict.text == "rank 0 has not been heard of for 31 s; it was in step 7"
    never = [LIVES[0], Beat()]
    assert judge(never, later(never, stands=1), 0.0, 0).text == "rank 1 has never been heard of"


def test_the_reader_lives_though_its_beats_have_stopped() -> None:
    assert judge(LIVES, later(LIVES, stands=1), 0.0, 1).everyone_lives


def test_a_lost_rank_comes_before_those_that_raised_for_want_of_it() -> None:
    after = later(LIVES, stands=0)
    after[1] = replace(after[1], word="raised", order=1, error="RuntimeError: closed")
    assert judge(LIVES, after, 0.0, 1).ranks == (0,)


def test_the_first_that_raised_is_the_cause() -> None:
    raised = [replace(b, word="raised", order=2 - i, error=f"E{i}") for i, b in enumerate(LIVES)]
    verdict = judge(LIVES, raised, 0.0, 0)
    assert verdict.ranks == (1,) and verdict.text == "rank 1 failed in step 7: E1"


def test_ranks_that_live_are_told_by_how_far_they_are() -> None:
    behind = [replace(LIVES[0], marks=4, where="step 2"), LIVES[1]]
    verdict = judge(behind, later(behind), 0.0, 1)
    assert verdict.ranks == (0,) and verdict.everyone_lives
    assert verdict.text == "rank 0 lives and is still in step 2; the furthest is in step 7"
    assert "all 2 ranks live" in judge(LIVES, later(LIVES), 0.0, 1).text


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", "raised", "gave up", "done"])),
                min_size=2, max_size=9), st.data())  # fmt: skip
def test_only_ranks_that_stand_without_a_word_are_lost(
    ranks: list[tuple[bool, str]], data: st.DataObject
) -> None:
    reader = data.draw(st.integers(0, len(ranks) - 1))
    before = [Beat(count=1, word=word) for _, word in ranks]
    after = [replace(b, count=1 + beats) for b, (beats, _) in zip(before, ranks, strict=True)]
    expected = [
        rank
        for rank, (beats, word) in enumerate(ranks)
        if rank != reader and not beats and not word
    ]
    verdict = judge(before, after, 0.0, reader)
    assert ("heard of" in verdict.text) == bool(expected)
    if expected:
        assert list(verdict.ranks) == expected


@pytest.fixture
def team() -> Callable[..., list[Watch]]:
    """Watches over one store, and what each says and ends with."""

    def make(size: int) -> list[Watch]:
        store = dist.HashStore()
        made = []
        for rank in range(size):
            ends: list[int] = []
            one = Watch(store, rank, size, timeout=0.3, out=io.StringIO(), end=ends.append)
            one.ends = ends  # type: ignore[attr-defined]
            made.append(one)
        return made

    return make


def said(one: Watch) -> str:
    assert isinstance(one._out, io.StringIO)
    return one._out.getvalue()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_waits_ends_and_one_of_them_says_why(team: Callable[..., list[Watch]]) -> None:
    first, second, third = team(3)
    third.mark("step 1")
    third._publish()  # and never again
    for one in (first, second):
        one.mark("step 1")
        one.mark("step 2")
        one.start()
    wait_for(lambda: bool(first.ends and second.ends))  # type: ignore[attr-defined]
    assert first.ends[0] == second.ends[0] == LOST  # type: ignore[attr-defined]
    told = said(first) + said(second)
    assert re.fullmatch(
        r"error: rank 2 has not been heard of for \d+ s; it was in step 1; rank [01] \(in step 2\) "
        r"has waited for \d+ s\n",
        told,
    ), told


def test_who_gets_on_is_left_alone(team: Callable[..., list[Watch]]) -> None:
    first, second = team(2)
    for one in (first, second):
        one.start()
    begin = time.monotonic()
    while time.monotonic() - begin < 1.0:
        for one in (first, second):
            one.mark("a step")
        time.sleep(0.02)
    for one in (first, second):
        one.done()
    assert not first.ends and not second.ends  # type: ignore[attr-defined]
    assert said(first) == said(second) == ""


def test_start_up_takes_as_long_as_it_takes_while_all_live(
    team: Callable[..., list[Watch]],
) -> None:
    both = team(2)
    for one in both:
        one.start()
    time.sleep(2.0)
    assert not any(one.ends for one in both)  # type: ignore[attr-defined]
    for one in both:
        one.done()


def test_a_process_ends_with_the_one_that_started_it() -> None:
    ends: list[int] = []
    out = io.StringIO()
    gone = os.getpid()  # not our parent
    one = Watch(dist.HashStore(), 0, 1, timeout=60, launcher=gone, out=out, end=ends.append)
    one.interval = 0.05
    one.start()
    wait_for(lambda: bool(ends))
    one.done()
    assert ends[0] == LOST and "the program that started this process is gone" in out.getvalue()


def test_an_error_of_ones_own_is_told_at_once_and_that_of_another_named(
    team: Callable[..., list[Watch]],
) -> None:
    first, second = team(2)
    for one in (first, second):
        one.start()
        one.mark("step 5")
    assert second.failed(ValueError("bad\nnumbers")) is None
    closed = RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer")
    assert first.failed(closed) == (
        "rank 1 failed in step 5: ValueError: bad; rank 0 (in step 5) waited for it"
    )


def test_one_rank_tells_a_refusal_that_all_have(team: Callable[..., list[Watch]]) -> None:
    assert [one.refused("no") for one in team(3)] == [True, False, False]


def test_a_store_that_is_gone_does_not_hold_up_the_end(
    team: Callable[..., list[Watch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone,) = team(1)

    def hang(*arguments: object) -> bytes:
        time.sleep(60)
        return b""

    monkeypatch.setattr(watch.Watch, "_patience", 0.2)
    names = ("set", "add", "check", "multi_get", "compare_set")
    monkeypatch.setattr(alone, "_store", type("Hangs", (), dict.fromkeys(names, hang))())
    told = alone.failed(dist.DistNetworkError("gone"))
    assert told is not None and "has not answered for" in told
