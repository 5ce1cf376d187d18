"""What a run tells: one line a report, and TensorBoard scalars where they are asked for."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from .refusal import Refusal


@dataclass(frozen=True)
class Report:
    """The state after ``step`` steps; ``loss`` is the mean over the steps since the last report."""

    step: int
    loss: float
    norm: float
    rate: float
    tokens_per_second: float
    seconds_left: float
    held_out: float | None = None


class Progress:
    """Prints reports on the one rank that speaks; says nothing on the others.

    On a terminal a line that is written over shows which step runs; in a file there are no carriage
    returns.
    """

    def __init__(
        self,
        steps: int,
        *,
        speaks: bool,
        tensorboard: Path | None = None,
        out: TextIO | None = None,
    ) -> None:
        self.steps = steps
        self.speaks = speaks
        self.out = out or sys.stdout
        self._terminal = speaks and self.out.isatty()
        self._writer: Any = _writer(tensorboard) if speaks and tensorboard else None

    def note(self, text: str) -> None:
        """A line of its own."""
        if self.speaks:
            print(self._over(text), file=self.out, flush=True)

    def tick(self, step: int) -> None:
        """Step ``step`` is running. Costs no synchronisation, so it may be called at each."""
        if self._terminal:
            print(f"\r\x1b[Kstep {step}/{self.steps}", end="", file=self.out, flush=True)

    def report(self, report: Report) -> None:
        self.note(line(report, self.steps))

    def scalars(self, step: int, **values: float) -> None:
        """Add values to the TensorBoard log, if there is one."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _over(self, text: str) -> str:
        return f"\r\x1b[K{text}" if self._terminal else text


class Clock:
    """Tokens a second since the last reading, and the seconds that are left at that speed."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._busy = 0.0
        self._steps = 0

    def read(self, steps: int, tokens: int, left: int) -> tuple[float, float]:
        """After ``steps`` steps of ``tokens`` tokens together, with ``left`` steps to go."""
        seconds = max(time.perf_counter() - self._since, 1e-9)
        self.restart()
        self._busy += seconds
        self._steps += steps
        # The first step compiles and warms up: time left is a matter of all steps so far.
        return tokens / seconds, left * self._busy / self._steps

    def restart(self) -> None:
        """Do not count what happened since the last reading (an evaluation, a checkpoint)."""
        self._since = time.perf_counter()


def line(report: Report, steps: int) -> str:
    """A report as text, its columns in the same places from line to line."""
    width = len(str(steps))
    held_out = "" if report.held_out is None else f"  held-out {report.held_out:.4f}"
    return (
        f"step {report.step:>{width}}/{steps}  loss {report.loss:.4f}  norm {report.norm:.3f}  "
        f"lr {report.rate:.2e}  {report.tokens_per_second:,.0f} tokens/s  "
        f"{duration(report.seconds_left)} left{held_out}"
    )


def duration(seconds: float) -> str:
    """``42s``, ``3m07s``, ``2h05m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise Refusal(
            "--tensorboard needs the package tensorboard: pip install 'specc[tensorboard]'."
        ) from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise Refusal(f"--tensorboard {folder} cannot be written to: {error}.") from None
