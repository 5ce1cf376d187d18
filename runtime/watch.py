"""Watch: what each rank is doing, known to the others, so that none waits for a lost one for ever.

Every rank publishes a *beat* to the rendezvous store now and then, from a small thread: a count,
and where its program stands. Nothing of it is in a step's path, and no thread of it calls the
device. When a collective raises, or a rank gets no further for the time-out, it reads the others'
beats. Ranks that have stopped beating without a last word are lost; else the one that raised first
is the cause; else those furthest behind are. It says so and ends, and waits for no collective.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any, TextIO

from torch.distributed import DistError
from torch.distributed.distributed_c10d import PrefixStore, Store

from .verdict import STARTING, Beat, Verdict, judge

LOST = 3  # the exit status of a rank that ends because of another one
# What gloo's plain RuntimeErrors say where another rank, not this one, has failed.
_OF_OTHERS = ("gloo", "Connection closed by peer", "Connection reset by peer", "Timed out waiting")


class Watch:
    """One rank's view of all. The program calls ``mark`` as it gets on.

    ``timeout``: seconds without a mark after which the run is given up; a step has to fit in it.
    ``launcher``: the process whose end is the run's end, None where there is none.
    ``end`` ends the process, whatever its other threads do.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: float,
        launcher: int | None = None,
        out: TextIO | None = None,
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        # A connection of its own: while the program waits at the store, beats go on.
        connection = store.clone()  # type: ignore[attr-defined]  # not in its stubs
        self._store = PrefixStore("specc/watch", connection)
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.interval = min(5.0, max(0.1, timeout / 20))
        self._launcher = launcher
        self._out = out or sys.stderr
        self._end = end
        # The program's thread writes these three, the beating one the next two.
        self._where, self._marks, self._since = STARTING, 0, time.monotonic()
        self._count, self._word = 0, ""
        self._writing = threading.Lock()
        self._stopped = threading.Event()

    def start(self) -> Watch:
        """Begin to beat, and to look at this rank's own progress."""
        self._publish()
        for loop in (self._keep_beating, self._keep_looking):
            threading.Thread(target=loop, name="specc-watch", daemon=True).start()
        return self

    def mark(self, where: str) -> None:
        """The program has got as far as ``where``."""
        self._where, self._marks, self._since = where, self._marks + 1, time.monotonic()

    def done(self) -> None:
        """The program has come to its end."""
        self._stopped.set()
        self._bounded(lambda: self._publish("done"))

    def failed(self, error: BaseException) -> str | None:
        """Call it where the program failed; for an error that another rank brought about, says
        which one it was ("" where another rank says so already). None: the error is this rank's.
        """
        self._stopped.set()
        told = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {told[0] if told else ''}"
        self._bounded(lambda: self._publish("raised", text))
        if not _of_others(error):
            return None
        verdict = self._bounded(self._verdict) or _silent_store(self._patience)
        if verdict.ranks == (self.rank,):
            return None
        return f"{verdict.text}; {self._own()} waited for it" if self._speaks() else ""

    def refused(self, sentence: str) -> bool:
        """Call it where the program refuses its input; whether this rank is to say so."""
        self._stopped.set()
        self._bounded(lambda: self._publish("raised", sentence))
        return self._speaks()

    def _keep_beating(self) -> None:
        while not self._stopped.wait(self.interval):
            with contextlib.suppress(Exception):  # the store may come back; if not, others tell
                self._publish()

    def _keep_looking(self) -> None:
        while not self._stopped.wait(self.interval):
            if self._launcher is not None and os.getppid() != self._launcher:
                self._say("the program that started this process is gone, so it ends")
                self._end(LOST)
            elif time.monotonic() - self._since > self.timeout and self._gives_up():
                self._end(LOST)

    def _gives_up(self) -> bool:
        """Look at the others; whether this rank is to end."""
        marks = self._marks
        verdict = self._bounded(self._verdict) or _silent_store(self._patience)
        if self._stopped.is_set() or self._marks != marks:
            return False  # it got on meanwhile
        if verdict.everyone_lives and self._where == STARTING:
            self._since = time.monotonic()  # reading, building: there is no telling how long
            return False
        waited = time.monotonic() - self._since
        self._stopped.set()
        if self._speaks():
            self._say(f"{verdict.text}; {self._own()} has waited for {waited:.0f} s")
        self._bounded(lambda: self._publish("gave up"))
        return True

    def _own(self) -> str:
        return f"rank {self.rank} (in {self._where})"

    def _speaks(self) -> bool:
        """Whether this rank is the first to want to say why the run ends: one line, not one from
        each. Where the store does not answer, every rank speaks."""
        own = str(self.rank)
        first = self._bounded(lambda: self._store.compare_set("speaker", "", own).decode())
        return first in (None, own)

    def _verdict(self) -> Verdict:
        before = self._read()
        time.sleep(max(1.0, 3 * self.interval))
        return judge(before, self._read(), time.time(), self.rank)

    def _read(self) -> list[Beat]:
        keys = [str(rank) for rank in range(self.size)]
        held = keys if self._store.check(keys) else [k for k in keys if self._store.check([k])]
        found = dict(zip(held, self._store.multi_get(held), strict=True))
        return [Beat(*json.loads(found[key])) if key in found else Beat() for key in keys]

    def _publish(self, word: str = "", error: str = "") -> None:
        with self._writing:
            if self._word:
                return  # a last word stays
            order = self._store.add("raised", 1) if word == "raised" else 0
            self._count, self._word = self._count + 1, word
            beat = Beat(
                self._count, time.time(), self._where, self._marks, word, order, error[:500]
            )
            self._store.set(str(self.rank), json.dumps(astuple(beat)))  # short: a file keeps all

    @property
    def _patience(self) -> float:
        """Seconds for the store to answer: it may be gone, or locked by a process that stands."""
        return 5 + 5 * self.interval

    def _bounded(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns; None where it fails or takes too long."""
        results: list[Any] = []

        def run() -> None:
            with contextlib.suppress(Exception):
                results.append(work())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._patience)
        return results[0] if results else None

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody may be there to read it
            print(f"error: {text}", file=self._out, flush=True)


def _silent_store(seconds: float) -> Verdict:
    told = f"the store at which the ranks meet has not answered for {seconds:.0f} s"
    return Verdict((), told)


def _of_others(error: BaseException) -> bool:
    if isinstance(error, DistError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OF_OTHERS)
