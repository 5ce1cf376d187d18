"""A run that stops and resumes at the same layout has the losses of one that never stopped."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from workers import RankError

from specc.runtime import Mesh, checkpoint_folder
from specc.runtime.checkpoint import Stored, newest_step
from specc.runtime.options import parse
from specc.runtime.run import Result, Run

Ranks = Callable[..., list[Any]]


def train(arguments: list[str], degrees: dict[str, Any], stop: tuple[int, str] | None) -> Result:
    """Train; with ``stop`` every process ends right after that step of the n-th save."""
    mesh = Mesh.launch(**degrees)
    run = Run(parse(arguments), mesh)
    saves = 0

    def step(name: str) -> None:
        nonlocal saves
        saves += name == "make the folder"
        if (saves, name) == stop:
            os._exit(1)

    original, checkpoint_folder._step = checkpoint_folder._step, step
    try:
        return run.train()
    finally:
        checkpoint_folder._step = original


def same(one: Path, other: Path) -> bool:
    """Whether two checkpoints hold the same tensors, bit for bit."""
    for section in ("model", "optimizer"):
        a, b = Stored(one, section), Stored(other, section)
        if set(a) != set(b) or not all(torch.equal(a[name], b[name]) for name in a):
            return False
    return True


LAYOUTS = {
    "tp2": (2, {"tp": 2}),
    "tp2 sp": (2, {"tp": 2, "sequence_parallel": True}),
    "dp2": (2, {}),
    "dp2 zero1": (2, {}),
    "cp2": (2, {"cp": 2}),
    "tp2 dp2": (4, {"tp": 2}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_losses_with_accumulation_and_dropout(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, layout: str
) -> None:
    size, degrees = LAYOUTS[layout]
    words = [tiny_page, "--data", text, "--steps", 5, "--micro-batch", 2, "--global-batch", 8]
    words += ["--set", "hidden_dropout=0.2", "--save-every", 2, "--seq-length", 16]
    words += ["--zero", 1] if "zero1" in layout else []
    shared = [str(word) for word in words]
    whole = ranks(
        size, train, [*shared, "--out", str(tmp_path / "a"), "--keep", "9"], degrees, None
    )
    resume = [*shared, "--out", str(tmp_path / "b"), "--async-save"]
    resume += ["--resume", str(tmp_path / "a" / "step-00000002")]
    resumed = ranks(size, train, resume, degrees, None)
    for once, again in zip(whole, resumed, strict=True):
        assert again.losses == {step: once.losses[step] for step in (3, 4, 5)}
        assert again.norms == {step: once.norms[step] for step in (3, 4, 5)}
        assert again.held_out[5] == once.held_out[5]
    assert same(tmp_path / "a" / "step-00000005", tmp_path / "b" / "step-00000005")


STOPS = [(2, "write index.json"), (2, "rename"), (3, "marker"), (3, "rename step-00000001")]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_that_stops_inside_saves_goes_on_from_the_last_whole_one(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, asynchronous: bool
) -> None:
    words = [tiny_page, "--data", text, "--steps", 6, "--micro-batch", 2, "--save-every", 1]
    words += ["--seq-length", 16, "--keep", 2, *(["--async-save"] if asynchronous else [])]
    shared = [str(word) for word in words]
    whole = ranks(2, train, [*shared, "--out", str(tmp_path / "whole")], {}, None)[0]
    for stop in STOPS:
        out = tmp_path / f"{stop}"
        with pytest.raises(RankError):
            ranks(2, train, [*shared, "--out", str(out)], {}, stop)
        saves, name = stop
        done = newest_step(out)
        assert done == (saves if name in ("marker", "rename step-00000001") else saves - 1)
        resumed = ranks(2, train, [*shared, "--out", str(out), "--resume"], {}, None)[0]
        assert resumed.losses == {step: x for step, x in whole.losses.items() if step > done}
        assert sorted(path.name for path in out.iterdir()) == ["step-00000005", "step-00000006"]
        assert same(out / "step-00000006", tmp_path / "whole" / "step-00000006")
