"""A rank that is killed, stopped or fails ends the run, which says which rank it was."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from faulty import OURS, TORCHRUN, fault, faulty_page, start

from specc.runtime import checkpoint, train, watch
from specc.runtime.refusal import Refusal

COMMON = ("--no-verify", "--micro-batch", 2, "--eval-batches", 1, "--log-every", 1)


@pytest.fixture
def page(tiny_page: Path, tmp_path: Path) -> Path:
    return faulty_page(tiny_page, tmp_path)


def test_a_killed_rank_is_named_with_its_step(page: Path, text: Path) -> None:
    run = start(
        OURS, page, "--data", text, *COMMON, "--nproc", 3, "--timeout", 6,
        faults=fault(1, 3, signal.SIGKILL),
    )  # fmt: skip
    assert run.returncode == 128 + signal.SIGKILL
    told = run.stderr.splitlines()
    assert told[0] == "error: rank 1 was ended by signal 9 (SIGKILL)"
    pattern = r"error: rank 1 has not been heard of for \d+ s; it was in .*; rank [02] \(in .*"
    assert len(told) == 2 and re.fullmatch(pattern, told[1]), run.stderr


def test_a_stopped_rank_is_found_by_the_others(page: Path, text: Path) -> None:
    begin = time.monotonic()
    run = start(
        OURS, page, "--data", text, *COMMON, "--nproc", 2, "--timeout", 3,
        faults=fault(1, 3, signal.SIGSTOP),
    )  # fmt: skip
    assert run.returncode == 3
    told = re.fullmatch(
        r"error: rank 1 has not been heard of for (\d+) s; it was in .*; rank 0 \(in step 3\) has "
        r"waited for \d+ s\n",
        run.stderr,
    )
    assert told is not None, run.stderr
    assert int(told[1]) >= 3
    assert time.monotonic() - begin < 120  # gloo itself would wait for ten minutes


class Told(watch.Watch):
    """A watch that knows already what happened."""

    def __init__(self, *, cause: str | None = None, speaks: bool = True) -> None:
        self.cause, self.speaks = cause, speaks

    def failed(self, error: BaseException) -> str | None:
        return self.cause

    def refused(self, sentence: str) -> bool:
        return self.speaks


@pytest.mark.parametrize(
    ("cause", "status", "words"),
    [
        (None, 1, ["Traceback", "ArithmeticError: own"]),
        ("rank 3 is lost", watch.LOST, ["error: rank 3 is lost\n"]),
        ("", watch.LOST, []),  # another rank says it
    ],
)
def test_how_a_rank_ends_that_failed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cause: str | None,
    status: int,
    words: list[str],
) -> None:
    monkeypatch.setattr(os, "_exit", sys.exit)

    def program() -> None:
        raise ArithmeticError("own")

    with pytest.raises(SystemExit) as end:
        train._watched(Told(cause=cause), program)
    said = capsys.readouterr().err
    assert end.value.code == status
    assert all(word in said for word in words) and bool(said) == bool(words)


@pytest.mark.parametrize("speaks", [True, False])
def test_a_refusal_is_told_by_the_rank_that_was_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], speaks: bool
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def program() -> None:
        raise Refusal("No.")

    assert train._watched(Told(speaks=speaks), program) == 2
    assert capsys.readouterr().err == ("error: No.\n" if speaks else "")


def test_torchrun_comes_back_from_the_last_checkpoint_bit_for_bit(
    page: Path, text: Path, tmp_path: Path
) -> None:
    """Killed before there is a checkpoint it starts over; killed after one it goes on from it."""
    shared = (page, "--data", text, *COMMON, "--steps", 7, "--save-every", 3)
    faults = f"{fault(1, 2, signal.SIGKILL)} {fault(0, 5, signal.SIGKILL, attempt=1)}"
    broken = start(
        [*TORCHRUN, "--max-restarts=2", "-m", "specc.runtime.train"],
        *shared, "--out", tmp_path / "broken", faults=faults,
    )  # fmt: skip
    assert broken.returncode == 0, broken.stderr
    whole = start(OURS, *shared, "--nproc", 2, "--out", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    begins = re.findall(r"held out; (.*)", broken.stdout)
    assert begins[-2:] == [
        "from the start (restart 1 of the job)",
        "after step 3 (restart 2 of the job)",
    ]
    losses = [re.findall(r"step (\d)/7  loss (\S+)  norm (\S+)", r.stdout) for r in (broken, whole)]
    assert losses[0][-4:] == losses[1][-4:] and len(losses[1]) == 7
    for section in ("model", "optimizer"):
        ends = [
            checkpoint.Stored(tmp_path / name / "step-00000007", section)
            for name in ("broken", "whole")
        ]
        for name in ends[0]:
            assert torch.equal(ends[0][name], ends[1][name]), name


_LAUNCHER = """
import sys
from specc.runtime.launch import launch
sys.exit(launch("sleeps", sys.argv[1:], 2))
"""
_SLEEPS = """
import os, sys, time
path = os.path.join(sys.argv[1], os.environ["RANK"])
open(path + ".new", "w").write(str(os.getpid()))
os.rename(path + ".new", path)
time.sleep(60)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_their_launcher(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "sleeps.py").write_text(_SLEEPS)
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    try:
        children = [_number(tmp_path / str(rank)) for rank in range(2)]
        launcher.send_signal(end)
        launcher.wait(timeout=10)
        deadline = time.monotonic() + 10
        while any(_lives(child) for child in children):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        launcher.kill()


def _number(file: Path) -> int:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(file.read_text())


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a dead one that nobody has waited for
