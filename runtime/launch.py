"""Processes: start several of this program on one machine, and join the group in each.

Under torchrun the second half alone is used. Our own launcher has no rendezvous agent: the
processes meet at a file, so no port is taken, and a refused run ends with its one sentence.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from .refusal import Refusal
from .watch import LOST

MEETING = "SPECC_MEETING_FILE"  # set for the processes that `launch` starts
REFUSED = 2  # the exit status where the input was refused
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def world_size() -> int:
    """How many processes the environment says there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def launched() -> bool:
    """Whether torchrun or `launch` started this process."""
    return "WORLD_SIZE" in os.environ


def launcher() -> int | None:
    """The process that started this one and whose end is its end; None where there is none."""
    started = MEETING in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
    return os.getppid() if started else None


@dataclass(frozen=True)
class Job:
    """What torchrun runs: the same ``name`` at every attempt, and at no other job."""

    name: str
    restarts: int


def job(store: Store | None) -> Job | None:
    """The job that this process belongs to, by what rank 0 tells all; None without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None or store is None:
        return None
    if name == "none":  # torchrun's own default: as good as no name
        name = f"{socket.gethostname()}-{os.getppid()}"
    if rank() == 0:
        store.set("specc/job", name)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Job(store.get("specc/job").decode(), restarts)


def launch(module: str, arguments: Sequence[str], processes: int, *, patience: float = 30.0) -> int:
    """Run ``python -m module arguments`` in so many processes; the first failure's exit status.

    After a failure the others get ``patience`` seconds to say what they were at and end by
    themselves, then they are ended. On Linux they end with this process, however it ends. Each
    process gets its part of the machine's cores, unless OMP_NUM_THREADS is set.
    """
    environment = dict(os.environ)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes)))
    with tempfile.TemporaryDirectory(prefix="specc-") as folder:
        environment[MEETING] = str(Path(folder) / "store")
        children = [
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=environment
                | {"RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(processes)},
                preexec_fn=end_with_parent(),
            )
            for i in range(processes)
        ]
        try:
            return _wait(children, patience)
        finally:
            _end(children)


def end_with_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes the program: the kernel kills it when we end."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(LOST)  # it ended before we asked

    return ask


def _wait(children: list[subprocess.Popen[bytes]], patience: float) -> int:
    deadline = float("inf")
    first = 0
    while True:
        statuses = [child.poll() for child in children]
        if not first and any(statuses):
            index, first = next((i, status) for i, status in enumerate(statuses) if status)
            # The others end soon for want of it, or wait for it in a collective for ever. Where one
            # has said which rank was lost, there is no more to hear.
            deadline = time.monotonic() + (min(patience, 2.0) if first == LOST else patience)
            if first not in (REFUSED, LOST):  # those have been told by the process itself
                print(f"error: rank {index} {_ending(first)}", file=sys.stderr, flush=True)
        if None not in statuses or time.monotonic() > deadline:
            return first if first >= 0 else 128 - first  # a signal, told the way a shell does
        time.sleep(0.05)


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "of no name here"
    return f"was ended by signal {-status} ({name})"


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)  # one that was stopped ends when it goes on
    for child in children:
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def patience(timeout: float) -> float:
    """Seconds that a collective may take where a run is given up after ``timeout``: more, since the
    watch can say why, and 10 minutes at least, for what comes before the first step."""
    return max(600.0, timeout + 60.0)


@contextmanager
def process_group(device: str, seconds: float = 600.0) -> Iterator[Store]:
    """Join the others (or a group of one), leave at the end. CUDA ranks take a device each.

    Gives the store at which the processes met. A collective may take so many ``seconds``.
    """
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(local_rank())
    limit = timedelta(seconds=seconds)
    store, number, size = _meet(limit)
    dist.init_process_group(backend, store=store, rank=number, world_size=size, timeout=limit)
    try:
        yield store
    finally:
        dist.destroy_process_group()


def _meet(limit: timedelta) -> tuple[Store, int, int]:
    """The store, this process's number, and how many there are."""
    meeting = os.environ.get(MEETING)
    if meeting is not None:
        store = dist.FileStore(meeting, world_size())  # type: ignore[attr-defined]  # not in its stubs
        store.set_timeout(limit)
        return store, rank(), world_size()
    if launched():
        store, number, size = next(iter(rendezvous("env://", timeout=limit)))
        # torchrun keeps its store from one attempt to the next, addresses of dead ranks in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"specc/attempt_{attempt}", store), number, size
    alone = dist.HashStore()  # type: ignore[attr-defined]  # not in its stubs
    return alone, 0, 1


def choose_device(name: str | None) -> str:
    """``cpu`` or ``cuda``; CUDA where there is one and none is named.

    Raises Refusal where the device is unknown, or there are fewer than this machine's processes.
    """
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise Refusal(f"--device {name} is not one of the 2 that are known: cpu, cuda.")
    here, there = int(os.environ.get("LOCAL_WORLD_SIZE", world_size())), torch.cuda.device_count()
    if name == "cuda" and here > there:
        raise Refusal(
            f"--device cuda: {here} processes on this machine need a GPU each, and torch "
            f"sees {there}."
        )
    return name
