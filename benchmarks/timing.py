"""What every contender of a timing shares: the shape, the data, the clock and the memory meter."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

# A Llama of 8B width with 8 of its layers: what one H200 holds with float32 masters and AdamW.
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 1e-4, (0.9, 0.95), 0.1, 1.0
ROTARY_BASE, NORM_EPSILON, INIT_STD = 500000.0, 1e-5, 0.02


@dataclass(frozen=True)
class Shape:
    """The model and the batch that every contender takes."""

    layers: int = 8
    hidden: int = 4096
    heads: int = 32
    groups: int = 8  # key/value heads
    ffn: int = 14336
    vocab: int = 128256
    batch: int = 2
    length: int = 8192

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def add_shape(parser: argparse.ArgumentParser) -> None:
    """An option for each number of the shape."""
    for field in fields(Shape):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)


def shape_of(options: argparse.Namespace) -> Shape:
    return Shape(**{field.name: getattr(options, field.name) for field in fields(Shape)})


def random_batches(vocab: int, batch: int, length: int, count: int) -> list[Tensor]:
    """``count`` batches [batch, length + 1] of random token ids, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(vocab, (batch, length + 1), generator=generator) for _ in range(count)]


@dataclass(frozen=True)
class Timing:
    """Seconds of each measured step, the peak of memory over them in GiB (0 on CPU), and losses."""

    seconds: tuple[float, ...]  # each step waited for
    running: float  # a step's mean where nothing waits in between, as a training loop runs
    allocated: float
    reserved: float
    warmup: float  # seconds before the first measured step, compiling included
    losses: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def time_steps(
    step: Callable[[int, Tensor], Tensor],
    batches: Sequence[Tensor],
    *,
    warmup: int,
    steps: int,
    running: int,
    device: str,
) -> Timing:
    """Times ``step(number, ids)``, which returns the loss and takes one of ``batches`` in turn."""
    losses: list[Tensor] = []

    def take(number: int) -> None:
        losses.append(step(number, batches[number % len(batches)]).detach())

    start = time.perf_counter()
    for number in range(warmup):
        take(number)
    wait(device)
    warm = time.perf_counter() - start
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for number in range(warmup, warmup + steps):
        begin = time.perf_counter()
        take(number)
        wait(device)
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    for number in range(warmup + steps, warmup + steps + running):
        take(number)
    wait(device)
    mean = (time.perf_counter() - begin) / running if running else float("nan")
    cuda = device == "cuda"
    return Timing(
        tuple(seconds),
        mean,
        torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0,
        torch.cuda.max_memory_reserved() / 2**30 if cuda else 0.0,
        warm,
        tuple(float(loss) for loss in losses),
    )


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
