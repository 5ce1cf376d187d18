"""A process may stop after any step of the writer: the newest whole checkpoint stays loadable.

Two ranks save step 2 beside step 1, of which only the newest is to stay, and stop right after one
step of the writer: rank 0, rank 1, or both. Most steps are rank 0's alone; there all processes stop
where one is all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_model import build, facts, launch, read, set_values
from workers import RankError

from specc.runtime import Mesh, checkpoint_folder
from specc.runtime.checkpoint import Saver, find, newest_step
from specc.runtime.checkpoint_folder import complete_steps, number

Ranks = Callable[..., list[Any]]


def files_of(rank: int, size: int) -> list[str]:
    number = "" if size == 1 else f"-{rank:05d}-of-{size:05d}"
    names = [f"{section}{number}.safetensors" for section in ("model", "optimizer")]
    return [f"{done} {name}" for name in names for done in ("write", "fsync")]


def deleted(name: str) -> list[str]:
    """The deletion of a checkpoint that one process wrote."""
    files = ("checkpoint.json", "index.json", "model.safetensors", "optimizer.safetensors")
    gone = [f"delete {name}.old/{file}" for file in files]
    return [f"rename {name}", *gone, f"delete {name}.old"]


BEFORE = ["delete step-00000009.partial", *deleted("step-00000000"), "make the folder"]
MARKED = ["marker", "fsync the marker", "unmark step-00000001", *deleted("step-00000001")]
AFTER = [
    *(
        f"{done} {name}"
        for name in ("checkpoint.json", "index.json", "tokenizer.json")
        for done in ("write", "fsync")
    ),
    "fsync the folder",
    "rename",
    "fsync the run's folder",
    "write complete.json.partial",
    "fsync complete.json.partial",
    *MARKED,
]
STEPS = {  # of each rank, by their number
    1: [[*BEFORE, *files_of(0, 1), *AFTER]],
    2: [[*BEFORE, *files_of(0, 2), *AFTER], files_of(1, 2)],
}


def save(folder: Path, stop: dict[int, str], asynchronous: bool) -> list[str]:
    """Save step 2. A rank that ``stop`` names ends its process right after that step of it.

    Returns the steps that this rank went through.
    """
    mesh = launch({})
    model, optimizer = build(mesh)
    set_values(model, optimizer, mesh, seed=2)
    passed: list[str] = []

    def step(name: str) -> None:
        passed.append(name)
        if stop.get(mesh.rank) == name:
            os._exit(1)

    saver = Saver(folder, mesh, keep=1, asynchronous=asynchronous)
    original, checkpoint_folder._step = checkpoint_folder._step, step
    try:
        saver.save(model, optimizer, facts(2), folder.with_name("tokenizer"))
        saver.finish()
    finally:
        checkpoint_folder._step = original
    return passed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with step 1, and what two stops long ago left."""
    (tmp_path / "tokenizer").write_text("{}")
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    saver = Saver(tmp_path / "run", mesh)
    for step in (0, 1):
        set_values(model, optimizer, mesh, seed=step)
        saver.save(model, optimizer, facts(step))
    (tmp_path / "run" / "step-00000000" / "complete.json").unlink()
    (tmp_path / "run" / "step-00000009.partial").mkdir()
    return tmp_path / "run"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("size", STEPS)
def test_these_are_all_steps_of_the_writer(
    ranks: Ranks, folder: Path, size: int, asynchronous: bool
) -> None:
    assert ranks(size, save, folder, {}, asynchronous) == STEPS[size]
    assert [entry.name for entry in folder.iterdir()] == ["step-00000002"]


STOPS = [
    *((1, {0: name}) for name in STEPS[1][0]),
    *((2, {0: name}) for name in STEPS[2][0]),
    *((2, {1: name}) for name in STEPS[2][1]),
    *((2, {0: a, 1: b}) for a, b in zip(files_of(0, 2), files_of(1, 2), strict=True)),
]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("size", "stop"), STOPS, ids=[f"{size}-{'+'.join(stop.values())}" for size, stop in STOPS]
)
def test_a_stop_loses_no_whole_checkpoint(
    ranks: Ranks, folder: Path, size: int, stop: dict[int, str], asynchronous: bool
) -> None:
    with pytest.raises(RankError):
        ranks(size, save, folder, stop, asynchronous)
    whole = 2 if stop.get(0) in MARKED else 1
    assert newest_step(folder) == whole
    assert find(folder) == folder / f"step-{whole:08d}"
    for marked in complete_steps(folder):
        assert read(marked, None, number(marked)) == []
    # The next save clears up: nothing of the stop is left.
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    set_values(model, optimizer, mesh, seed=3)
    Saver(folder, mesh, keep=1).save(model, optimizer, facts(3))
    assert [entry.name for entry in folder.iterdir()] == ["step-00000003"]
    assert read(find(folder), None, 3) == []


def test_all_is_on_the_disk_before_it_gets_its_name_and_its_marker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses what was not synced: files before the rename, names before the marker."""
    synced: list[str] = []
    at: dict[str, list[str]] = {}  # what was synced when a step was done

    def fsync(descriptor: int, original: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), folder))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(checkpoint_folder, "_step", lambda name: at.update({name: [*synced]}))
    mesh = Mesh.single()
    Saver(folder, mesh, keep=1).save(*build(mesh), facts(2), folder.with_name("tokenizer"))
    aside, final = "step-00000002.partial", "step-00000002"
    files = {path.name for path in (folder / final).iterdir()} - {"complete.json"}
    assert {f"{aside}/{name}" for name in files} <= set(at["rename"])
    assert at["rename"][-1] == aside  # the names in it, after all of them
    assert at["marker"][-2:] == [".", f"{final}/complete.json.partial"]
    assert at["unmark step-00000001"][-2:] == [final, "step-00000001"]
