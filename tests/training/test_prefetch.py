"""Batches made ahead of their steps: the same ones, no more than so many, errors in their turn."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from specc.runtime.data import Layout, MicroBatch
from specc.runtime.data_open import Data, open_data
from specc.runtime.mesh import Axis, Mesh
from specc.runtime.prefetch import Prefetch
from specc.runtime.trainer import Trainer

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


def test_what_cp_leaves_of_a_pinned_batch_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Tensor] = []  # without a GPU, what would be

    def is_pinned(tensor: Tensor) -> bool:
        return any(tensor is one for one in pinned)

    def pin(tensor: Tensor) -> Tensor:
        if not is_pinned(tensor):
            tensor = tensor.clone()
            pinned.append(tensor)
        return tensor

    monkeypatch.setattr(Tensor, "is_pinned", is_pinned)
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    ids = torch.arange(8)[None]
    batch = MicroBatch(ids, ids + 1, 0, torch.zeros_like(ids))
    mesh = Mesh(cp=Axis("cp", 2, 0, cast(Any, SimpleNamespace(group_name="unused"))))
    trainer = cast(Trainer, SimpleNamespace(mesh=mesh))
    for given in (batch, batch.pin_memory()):
        own = Trainer._own(trainer, given)
        assert own.input_ids.tolist() == [[0, 1, 6, 7]]
        assert own.labels.tolist() == [[1, 2, 7, 8]]
        for tensor in (own.input_ids, own.labels, own.starts):
            assert tensor is not None and is_pinned(tensor) == (given is not batch)
