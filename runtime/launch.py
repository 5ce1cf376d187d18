"""Processes: start several of this program on one machine, and join the group in each.

Under torchrun the second half alone is used. Our own launcher has no rendezvous agent: the
processes meet at a file, so no port is taken, and a refused run ends with its one sentence.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from .refusal import Refusal

MEETING = "SPECC_MEETING_FILE"  # set for the processes that `launch` starts


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


def launch(module: str, arguments: Sequence[str], processes: int, *, patience: float = 10.0) -> int:
    """Run ``python -m module arguments`` in so many processes; the first failure's exit status.

    After a failure the others get ``patience`` seconds to end by themselves, then they are ended.
    Each process gets its part of the machine's cores, unless OMP_NUM_THREADS is set.
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
            )
            for i in range(processes)
        ]
        try:
            return _wait(children, patience)
        finally:
            _end(children)


def _wait(children: list[subprocess.Popen[bytes]], patience: float) -> int:
    deadline = float("inf")
    first = 0
    while True:
        statuses = [child.poll() for child in children]
        if not first and any(statuses):
            first = next(status for status in statuses if status)
            # The others end soon for want of it, or wait for it in a collective for ever.
            deadline = time.monotonic() + patience
        if None not in statuses or time.monotonic() > deadline:
            return first if first >= 0 else 128 - first  # a signal, told the way a shell does
        time.sleep(0.05)


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    for child in children:
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Join the others (or a group of one), leave at the end. CUDA ranks take a device each."""
    meeting = os.environ.get(MEETING)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(local_rank())
    if meeting is not None:
        store = dist.FileStore(meeting, world_size())  # type: ignore[attr-defined]  # not in its stubs
        dist.init_process_group(backend, store=store, rank=rank(), world_size=world_size())
    elif launched():
        dist.init_process_group(backend, timeout=timedelta(minutes=10))
    else:
        alone = dist.HashStore()  # type: ignore[attr-defined]  # not in its stubs
        dist.init_process_group(backend, store=alone, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


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
