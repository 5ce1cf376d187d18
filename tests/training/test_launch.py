"""The program as a user starts it: processes of its own, and under torchrun."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specc.runtime import train
from specc.runtime.launch import launch

OURS = [sys.executable, "-m", "specc.runtime.train"]


def start(command: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_processes_of_our_own_and_torchrun_print_the_same_losses(
    tiny_page: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = (tiny_page, "--data", text, "--steps", 4, "--log-every", 1, "--no-verify")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    runs = [
        start(OURS, *shared, "--tp", 2, "--nproc", 2, "--out", tmp_path / "out"),
        start([*torchrun, "-m", "specc.runtime.train"], *shared, "--tp", 2),
    ]
    for run in runs:
        assert run.returncode == 0, run.stderr
        assert "\r" not in run.stdout and "\x1b" not in run.stdout
    assert train.main([str(argument) for argument in shared]) == 0
    printed = [*(run.stdout for run in runs), capsys.readouterr().out]
    losses = [re.findall(r"step (\d)/4  loss (\S+)", out) for out in printed]
    assert len(losses[0]) == 4
    assert losses[0] == losses[1] == losses[2]
    assert (tmp_path / "out" / "step-00000004" / "checkpoint.json").is_file()


def test_a_refusal_in_every_process_is_told_once(tiny_page: Path, text: Path) -> None:
    run = start(
        OURS, tiny_page, "--data", text, "--nproc", 2, "--tp", 2, "--no-verify",
        "--set", "num_query_groups=1",
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1, run.stderr
    assert "tp=2" in run.stderr and "1 output units" in run.stderr


@pytest.mark.parametrize(("dies", "status"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_process_that_dies_ends_the_others_and_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dies: str,
    status: int,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "rank_one_dies.py").write_text(
        f"import os, time\nif os.environ['RANK'] == '1':\n    {dies}\ntime.sleep(60)\n"
    )
    begin = time.monotonic()
    assert launch("rank_one_dies", [], 3, patience=0.2) == status
    assert time.monotonic() - begin < 30
    told = "ended with exit status 7" if status == 7 else "was ended by signal 9 (SIGKILL)"
    assert capsys.readouterr().err == f"error: rank 1 {told}\n"


def test_each_process_gets_its_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "tells.py").write_text(
        "import os, sys\n"
        "keys = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS')\n"
        "path = os.path.join(sys.argv[1], os.environ['RANK'])\n"
        "open(path, 'w').write(' '.join(os.environ[key] for key in keys))\n"
    )
    assert launch("tells", [str(tmp_path)], 3) == 0
    told = [(tmp_path / str(rank)).read_text() for rank in range(3)]
    assert told == ["0 0 3 2", "1 1 3 2", "2 2 3 2"]
