"""`specc train` in two processes, killed with -9 while it saves, again and again."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specc.runtime import Mesh
from specc.runtime.checkpoint import Stored, newest_step
from specc.runtime.options import parse
from specc.runtime.run import Result, Run

Ranks = Callable[..., list[Any]]
KILLS = 5
BETWEEN = 6  # steps from one kill to the next


def train(arguments: list[str]) -> Result:
    return Run(parse(arguments), Mesh.launch()).train()


def start_and_kill(arguments: list[str], out: Path, step: int, delay: float) -> None:
    """Start a run, and kill its launcher and its ranks once it is at a step, or a little later."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    run = subprocess.Popen(
        [sys.executable, "-m", "specc.runtime.train", *arguments, "--nproc", "2"],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 120
        while not any(out.glob(f"step-{step:08d}*")):
            assert run.poll() is None, run.stderr.read() if run.stderr else ""
            assert time.monotonic() < deadline, f"step {step} did not come"
            time.sleep(0.001)
        time.sleep(delay)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.more_kills) for seed in range(1, 10))]
)
def test_killed_runs_come_to_the_same_end_bit_for_bit(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    steps = KILLS * BETWEEN + 10  # so that none is at its end before it is killed
    words = [tiny_page, "--data", text, "--steps", steps, "--micro-batch", 2, "--save-every", 1]
    words += ["--seq-length", 16, "--eval-batches", 1, "--set", "hidden_dropout=0.1"]
    shared = [str(word) for word in words] + ["--async-save"] * (seed % 2)
    whole = ranks(2, train, [*shared, "--out", str(tmp_path / "whole")])[0]
    out = tmp_path / "out"
    arguments = [*shared, "--out", str(out)]
    before = None
    for kill in range(KILLS):
        step = BETWEEN * kill + draw.randint(2, BETWEEN)
        resume = [] if before is None else ["--resume"]
        start_and_kill([*arguments, *resume], out, step, draw.uniform(0, 0.02))
        done = newest_step(out)
        # The checkpoint before the one at work was whole, and the kill came soon after.
        assert done is not None and step - 1 <= done < steps
        before = done
    end = ranks(2, train, [*arguments, "--resume"])[0]
    assert end.losses == {step: loss for step, loss in whole.losses.items() if step > before}
    assert sorted(path.name for path in out.iterdir()) == [
        f"step-{step:08d}" for step in (steps - 1, steps)
    ]
    for section in ("model", "optimizer"):
        one, other = (
            Stored(tmp_path / name / f"step-{steps:08d}", section) for name in ("whole", "out")
        )
        assert all(torch.equal(one[name], other[name]) for name in one) and len(one) == len(other)
