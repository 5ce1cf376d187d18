"""Saver: asynchronous saves equal synchronous ones, errors surface, old checkpoints go."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checkpoint_model import build, differing, facts, launch, read, set_values, write

from specc.runtime import Mesh, checkpoint_folder
from specc.runtime.checkpoint import Saver, find, newest_step
from specc.runtime.refusal import Refusal

Ranks = Callable[..., list[Any]]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("size", "layout"), [(1, {}), (4, {"tp": 2})])
def test_asynchronous_saves_are_the_synchronous_ones_byte_for_byte(
    ranks: Ranks, tmp_path: Path, size: int, layout: dict[str, Any]
) -> None:
    for asynchronous in (False, True):
        ranks(size, write, tmp_path / str(asynchronous), layout, 3, asynchronous)
    assert contents(tmp_path / "True") == contents(tmp_path / "False")
    assert newest_step(tmp_path / "True") == 3


class Held:
    """Keeps the writer from going on until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        monkeypatch.setattr(checkpoint_folder, "_step", lambda name: self.go.wait(10))


def test_training_goes_on_while_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    set_values(model, optimizer, mesh, seed=1)
    saver = Saver(tmp_path, mesh, asynchronous=True)
    folder = saver.save(model, optimizer, facts(1))
    assert saver.saved is None and newest_step(tmp_path) is None
    set_values(model, optimizer, mesh, seed=2)  # what the next step does to the model
    held.go.set()
    saver.finish()
    assert saver.saved == folder == find(tmp_path)
    assert read(folder, None, 1) == []


def test_a_second_save_waits_for_the_first_and_uses_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    saver = Saver(tmp_path, mesh, asynchronous=True)
    set_values(model, optimizer, mesh, seed=1)
    saver.save(model, optimizer, facts(1))
    memory = {key: buffer.data_ptr() for key, buffer in saver._copies._buffers.items()}
    set_values(model, optimizer, mesh, seed=2)
    threading.Timer(0.05, held.go.set).start()
    saver.save(model, optimizer, facts(2))
    assert newest_step(tmp_path) is not None  # the first is whole before the second copies
    assert memory == {key: buffer.data_ptr() for key, buffer in saver._copies._buffers.items()}
    saver.finish()
    assert not saver._copies._buffers
    assert [read(tmp_path / f"step-0000000{step}", None, step) for step in (1, 2)] == [[], []]


def fail(folder: Path, asynchronous: bool, where: int) -> list[str]:
    """Save while one rank's disk is full; then once more, when there is room. The sentences."""
    mesh = launch({})
    model, optimizer = build(mesh)
    set_values(model, optimizer, mesh, seed=2)
    said: list[str] = []

    def step(name: str) -> None:
        if mesh.rank == where and name.startswith("write model"):
            raise OSError(28, "No space left on device")

    saver = Saver(folder, mesh, asynchronous=asynchronous)
    original, checkpoint_folder._step = checkpoint_folder._step, step
    try:
        saver.save(model, optimizer, facts(1))
        saver.finish()
    except Refusal as refusal:
        said.append(str(refusal))
    finally:
        checkpoint_folder._step = original
    saver.save(model, optimizer, facts(2))
    saver.finish()
    return [*said, *differing(model, optimizer, mesh, 2)]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("where", [0, 1])
def test_an_error_of_one_rank_is_a_sentence_on_all(
    ranks: Ranks, tmp_path: Path, asynchronous: bool, where: int
) -> None:
    first, second = ranks(2, fail, tmp_path, asynchronous, where)
    assert first == second and len(first) == 1
    assert f"step 1 in {tmp_path} failed: rank {where}: [Errno 28] No space left" in first[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000002"]
    assert read(find(tmp_path), None, 2) == []


def test_an_error_of_the_thread_surfaces_at_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_folder, "_step", full)
    mesh = Mesh.single()
    saver = Saver(tmp_path, mesh, asynchronous=True)
    saver.save(*build(mesh), facts(1))
    with pytest.raises(Refusal, match=r"step 1 .*No space left"):
        saver.save(*build(mesh), facts(2))
    saver.finish()  # it was told once


def test_a_whole_checkpoint_is_not_written_over(tmp_path: Path) -> None:
    mesh = Mesh.single()
    saver = Saver(tmp_path, mesh)
    saver.save(*build(mesh), facts(1))
    before = contents(tmp_path)
    with pytest.raises(Refusal, match=r"step-00000001 is there already"):
        saver.save(*build(mesh), facts(1))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_stay(tmp_path: Path, keep: int) -> None:
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    saver = Saver(tmp_path, mesh, keep=keep)
    for step in (8, 9, 10, 11):
        saver.save(model, optimizer, facts(step))
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == [f"step-{step:08d}" for step in range(12 - keep, 12)]
    with pytest.raises(ValueError, match="keep=0"):
        Saver(tmp_path, mesh, keep=0)


def groups_used(folder: Path) -> list[str]:
    """The groups of all collectives of two asynchronous saves; the training's own is "world"."""
    mesh = launch({"tp": 2})
    model, optimizer = build(mesh)
    used: list[str] = []
    gather = dist.all_gather

    def watched(rows: Any, row: torch.Tensor, group: Any = None) -> Any:
        used.append("own" if group not in (None, dist.group.WORLD) else "world")
        return gather(rows, row, group=group)

    dist.all_gather = watched
    try:
        saver = Saver(folder, mesh, asynchronous=True)
        for step in (1, 2):
            saver.save(model, optimizer, facts(step))
        assert saver._group is not None and dist.get_backend(saver._group) == "gloo"
        saver.finish()
        assert saver._group is None
    finally:
        dist.all_gather = gather
    return used


def test_the_collectives_of_a_save_are_three_small_ones_in_a_group_of_its_own(
    ranks: Ranks, tmp_path: Path
) -> None:
    assert ranks(4, groups_used, tmp_path) == [["own"] * 6] * 4
