"""Batches made ahead of their steps: the same ones, no more than so many, errors in their turn."""

import threading
import time
from pathlib import Path

import pytest
import torch

from specc.runtime.data import Layout, MicroBatch
from specc.runtime.data_open import Data, open_data
from specc.runtime.prefetch import Prefetch

LAYOUT = Layout(2, 2)


@pytest.fixture
def data(text: Path) -> Data:
    return open_data([(1.0, text)], length=16, seed=0)


def test_it_gives_what_the_data_gives(data: Data) -> None:
    with Prefetch(data, LAYOUT, position=8, steps=5) as steps:
        found = list(steps)
    assert len(found) == 5
    for step, batches in enumerate(found):
        wanted = data.training_batches(LAYOUT, 8 + 4 * step)
        for one, other in zip(batches, wanted, strict=True):
            assert one.first_sequence == other.first_sequence
            assert torch.equal(one.input_ids, other.input_ids)
            assert torch.equal(one.labels, other.labels)


class Counting:
    """Data that counts how often it is asked, and fails at one step."""

    def __init__(self, fails: int | None = None) -> None:
        self.asked = 0
        self.fails = fails

    def training_batches(self, layout: Layout, position: int) -> list[MicroBatch]:
        if self.asked == self.fails:
            raise KeyError("damaged")
        self.asked += 1
        ids = torch.full((1, 1), position)
        return [MicroBatch(ids, ids, 0)]


def settled(data: Counting) -> int:
    """How often it is asked until no more comes."""
    before = -1
    while before != data.asked:
        before = data.asked
        time.sleep(0.05)
    return before


def test_it_runs_no_further_ahead_than_it_may() -> None:
    data = Counting()
    with Prefetch(data, LAYOUT, position=0, steps=100, ahead=3) as steps:  # type: ignore[arg-type]
        assert settled(data) <= 4  # three are ready and one waits for room
        next(steps)
        assert settled(data) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    assert data.asked < 10


def test_an_error_is_raised_at_its_step() -> None:
    data = Counting(fails=2)
    with Prefetch(data, LAYOUT, position=0, steps=9) as steps:  # type: ignore[arg-type]
        assert [int(next(steps)[0].input_ids) for _ in range(2)] == [0, 4]
        with pytest.raises(KeyError, match="damaged"):
            next(steps)
        with pytest.raises(StopIteration):
            next(steps)
