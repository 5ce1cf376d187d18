"""The measuring device itself, on programs whose bytes are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from jobs import LLAMA, LLAMA_70B, TP8
from one_rank import Job, Measured
from torch._subclasses.fake_tensor import FakeTensorMode
from tracker import Place, Tracker

from specc.runtime.layouts import parse_layouts
from specc.runtime.memory import saved_activations

GIB = 1 << 30


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    with FakeTensorMode(), Tracker({}) as tracker:
        yield tracker


def test_memory_is_counted_by_storage(tracker: Tracker) -> None:
    before = tracker.held()
    x = torch.zeros(GIB, dtype=torch.uint8)
    view = x.view(2, -1)[0]
    assert tracker.held() - before == GIB
    del x
    assert tracker.held() - before == GIB  # the view keeps all of it
    del view
    assert tracker.held() == before


def test_a_resized_storage_counts_as_fsdp_frees_it(tracker: Tracker) -> None:
    x = torch.zeros(GIB, dtype=torch.uint8)
    kept = torch.zeros(GIB, dtype=torch.uint8)
    before = tracker.held()
    x.untyped_storage().resize_(0)
    assert before - tracker.held() == GIB
    x.untyped_storage().resize_(GIB)
    assert tracker.held() == before
    assert tracker.held(sharding=False) == before - GIB
    assert kept.nbytes == GIB


def test_the_peak_stands_at_the_place_where_it_was(tracker: Tracker) -> None:
    tracker.restart()
    before = tracker.held()
    tracker.place = Place("forward", 3)
    x = torch.zeros(GIB, dtype=torch.uint8)
    y = x + x
    del x, y
    tracker.place = Place("end")
    torch.zeros(8)
    assert tracker.peak == tracker.peaks[Place("forward", 3)] == before + 2 * GIB
    assert tracker.held() == before


def test_an_unknown_way_to_communicate_is_refused(tracker: Tracker) -> None:
    with pytest.raises(NotImplementedError, match="are not counted"):
        torch.ops._c10d_functional.broadcast(torch.zeros(8), 0, "some group")


def test_what_a_page_keeps_beyond_its_table_is_seen(
    alone: Callable[[Job], Measured], tmp_path: Path
) -> None:
    """The measurement reads no formula: an activation in float32 costs what it costs."""
    text = LLAMA.read_text(encoding="utf-8")
    waste = text.replace("F.silu(gate) * up", "F.silu(gate.float()).to(up.dtype) * up")
    assert waste != text
    page = tmp_path / "wasteful.py"
    page.write_text(waste)
    (degrees,) = parse_layouts(TP8)
    job = Job(page, LLAMA_70B | {"num_layers": 1}, degrees, 8192)
    got = alone(job)
    gate = 8192 * 28672 // 8  # silu now keeps it in float32, beside linear_fc1's output
    assert got.saved[0] == saved_activations(got.shape, job.workload) + 4 * gate
    assert dataclasses.replace(got.shape, layers=80).parameters == 70_553_706_496
