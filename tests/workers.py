"""Gloo ranks for tests: processes that stay, forked from one that has imported torch and rested.

A test gets the ``ranks`` fixture and calls ``ranks(4, function, *args)``: every rank of a process
group of 4 runs ``function(*args)`` (a module-level function; ``dist.get_rank()`` tells them apart),
and the list of their results comes back. A rank that raises fails the test with its traceback.

A process that ran a backward pass or a thread pool must not fork, and the tests' own process does
both. So a *zygote* is forked from it when the session starts, before any test, and ranks are forked
from the zygote: 0.1 s for four of them, and 2 ms for an empty call once they run.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Client, Connection, Listener, Pipe, wait
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what every worker would otherwise import, seconds each
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor

import specc.runtime.mesh


class RankError(AssertionError):
    """A rank raised, died or hung; holds its traceback."""


class Zygote:
    """The process that ranks are forked from."""

    def __init__(self) -> None:
        here, there = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            here.close()
            _zygote(there)
        there.close()
        self._commands = here

    def fork(self, rank: int, size: int, folder: str) -> None:
        self._commands.send((rank, size, folder))

    def close(self) -> None:
        self._commands.close()
        os.waitpid(self.pid, 0)


class Pool:
    """``size`` ranks that wait for functions to run."""

    def __init__(self, zygote: Zygote, size: int) -> None:
        self.size = size
        self._zygote = zygote
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ranks: list[Connection] = []
        self._pids: list[int] = []

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = 120.0) -> list[Any]:
        """Each rank's result. Raises RankError; the ranks are then forked anew."""
        if not self._ranks:
            self._start()
        task = pickle.dumps((list(sys.path), pickle.dumps((function, args))))
        try:
            for connection in self._ranks:
                connection.send_bytes(task)
            return self._collect(timeout)
        except BaseException:
            self.kill()
            raise

    def _collect(self, timeout: float) -> list[Any]:
        results: dict[int, Any] = {}
        errors: dict[int, str] = {}
        deadline = time.monotonic() + timeout
        while len(results) + len(errors) < self.size:
            pending = [c for r, c in enumerate(self._ranks) if r not in results | errors]
            ready = wait(pending, max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for connection in ready:
                assert isinstance(connection, Connection)
                rank = self._ranks.index(connection)
                try:
                    ok, value = pickle.loads(connection.recv_bytes())
                except EOFError:
                    ok, value = False, "died without a word\n"
                if ok:
                    results[rank] = value
                else:
                    errors[rank] = value
                    # The others fail soon, for want of this one, or never will.
                    deadline = min(deadline, time.monotonic() + 2.0)
        if errors:
            first, *others = errors
            also = f"\n(then also ranks {others})" if others else ""
            raise RankError(f"rank {first} of {self.size}:\n{errors[first]}{also}")
        if len(results) < self.size:
            raise RankError(self._stacks(results, timeout))
        return [results[rank] for rank in range(self.size)]

    def _stacks(self, results: dict[int, Any], timeout: float) -> str:
        assert self._folder is not None
        hung = [rank for rank in range(self.size) if rank not in results]
        for rank in hung:
            os.kill(self._pids[rank], signal.SIGUSR1)
        time.sleep(0.5)
        stacks = [f"rank {r}:\n{Path(self._folder.name, f'stack{r}').read_text()}" for r in hung]
        return f"ranks {hung} of {self.size} were not done after {timeout} s\n" + "\n".join(stacks)

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="specc-ranks-")
        address = os.path.join(self._folder.name, "socket")
        with Listener(address, "AF_UNIX", backlog=self.size) as listener:
            for rank in range(self.size):
                self._zygote.fork(rank, self.size, self._folder.name)
            arrived = {}
            for _ in range(self.size):
                connection = listener.accept()
                rank, pid = connection.recv()
                arrived[rank] = (connection, pid)
        self._ranks = [arrived[rank][0] for rank in range(self.size)]
        self._pids = [arrived[rank][1] for rank in range(self.size)]

    def kill(self) -> None:
        """Ends the ranks; the next ``run`` forks new ones."""
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for connection in self._ranks:
            connection.close()
        self._ranks, self._pids = [], []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _zygote(commands: Connection) -> None:
    """Forks a rank for each command; ends with the tests' process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for ranks: no zombies
    while True:
        try:
            rank, size, folder = commands.recv()
        except EOFError:
            os._exit(0)
        if os.fork() == 0:
            commands.close()
            try:
                _rank(rank, size, folder)
            finally:
                os._exit(1)


def _rank(rank: int, size: int, folder: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    torch.set_num_threads(1)
    # A process group has three threads that poll, and a session launches hundreds of meshes: those
    # of one shape share theirs.
    specc.runtime.mesh.init_device_mesh = functools.cache(specc.runtime.mesh.init_device_mesh)
    with open(os.path.join(folder, f"stack{rank}"), "w") as stack:
        faulthandler.register(signal.SIGUSR1, stack)
        connection = Client(os.path.join(folder, "socket"), "AF_UNIX")
        connection.send((rank, os.getpid()))
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=300),
        )
        while True:
            try:
                path, task = pickle.loads(connection.recv_bytes())
            except EOFError:
                os._exit(0)
            try:
                sys.path[:] = path
                function, args = pickle.loads(task)
                reply = pickle.dumps((True, function(*args)))
            except BaseException:
                connection.send_bytes(pickle.dumps((False, traceback.format_exc())))
                os._exit(1)  # at once: the others see a closed connection instead of waiting
            connection.send_bytes(reply)
