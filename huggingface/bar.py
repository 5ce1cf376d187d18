"""A progress bar on stderr: on a terminal one line that is written over, else nothing."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30


class Bar:
    """Counts bytes of ``total``; call it with how many more are done."""

    def __init__(self, what: str, total: int, out: TextIO | None = None) -> None:
        self.what = what
        self.total = max(total, 1)
        self.out = out or sys.stderr
        self.done = 0
        self._shown = 0.0
        self._terminal = self.out.isatty()

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        if self._terminal and (now - self._shown > 0.1 or self.done == self.total):
            self._shown = now
            filled = _WIDTH * self.done // self.total
            bar = "#" * filled + "." * (_WIDTH - filled)
            gib = f"{self.done / 2**30:.1f} of {self.total / 2**30:.1f} GiB"
            print(f"\r\x1b[K{self.what} [{bar}] {gib}", end="", file=self.out, flush=True)

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=self.out, flush=True)
