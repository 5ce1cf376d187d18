"""Runs in which one process is killed or stopped, as a user would start them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

OURS = [sys.executable, "-m", "specc.runtime.train"]
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
]  # fmt: skip

# Each of FAULTS is attempt:rank:step:signal.
_FAULTS = """
import functools
import os

_calls = 0


def _faulty(forward):
    @functools.wraps(forward)
    def run(self, *args, **kwargs):
        global _calls
        _calls += self.training
        place = [os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "RANK")]
        for fault in os.environ.get("FAULTS", "").split():
            *where, number = fault.split(":")
            if self.training and where == [*place, str(_calls)]:
                os.kill(os.getpid(), int(number))
        return forward(self, *args, **kwargs)

    return run


GPTModel.forward = _faulty(GPTModel.forward)
"""


def faulty_page(page: Path, folder: Path) -> Path:
    """A copy of a page with a GPTModel; one micro-batch is a step."""
    copy = folder / "faulty.py"
    copy.write_text(page.read_text() + _FAULTS)
    return copy


def start(
    command: list[str], *arguments: object, faults: str = ""
) -> subprocess.CompletedProcess[str]:
    hidden = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=environment | {"FAULTS": faults, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def fault(rank: int, step: int, end: signal.Signals, attempt: int = 0) -> str:
    return f"{attempt}:{rank}:{step}:{end.value}"
