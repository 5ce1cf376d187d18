"""The next steps' batches, made while the current step computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from .data import Layout, MicroBatch
from .data_open import Data


class Prefetch:
    """Iterates over the micro-batches of ``steps`` steps from ``position`` on; used in a ``with``.

    A thread makes them in order, ``ahead`` steps before they are asked for at most: what comes out
    is what ``data.training_batches`` returns. ``pin``: in pinned memory, for a copy to a GPU that
    blocks nothing. What the thread raises is raised where the step is asked for.
    """

    def __init__(
        self,
        data: Data,
        layout: Layout,
        *,
        position: int,
        steps: int,
        ahead: int = 2,
        pin: bool = False,
    ) -> None:
        self._data = data
        self._layout = layout
        self._positions = range(
            position, position + steps * layout.global_batch, layout.global_batch
        )
        self._pin = pin
        self._ready: queue.Queue[Sequence[MicroBatch] | BaseException | None]
        self._ready = queue.Queue(ahead)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Sequence[MicroBatch]]:
        return self

    def __next__(self) -> Sequence[MicroBatch]:
        if self._stop.is_set():
            raise StopIteration
        found = self._ready.get()
        if isinstance(found, Sequence):
            return found
        self.close()
        raise StopIteration if found is None else found

    def close(self) -> None:
        """End the thread; what it has made is dropped."""
        self._stop.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._ready.get(timeout=0.01)  # it may be waiting for room

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for position in self._positions:
                batches = self._data.training_batches(self._layout, position)
                if self._pin:
                    batches = [batch.pin_memory() for batch in batches]
                self._ready.put(batches)
                if self._stop.is_set():
                    return
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)
