"""The losses of a page's first steps in bf16 against the same run in float32.

    python benchmarks/precision.py generated_examples/llama.py \
        --set num_layers=8 hidden_size=4096 ffn_hidden_size=14336 --batch 2 --length 8192

Same page, same seed and initial values, same data and rate; each run in a process of its own. The
data can be learned (token ids by Zipf's law, a third of them the one before), so that the losses
move and a wrong gradient would show.

The bound: at every step |bf16 - float32| <= 2^-8 x float32. bf16 keeps 8 significant bits, so one
rounding is off by at most 2^-8 of the value (half a unit in the last place). Each token's loss is
read from logits that were rounded so; a loss is as large as the logits that it is made of, so its
own error is of that order, and smaller after a mean over tokens. Weights are float32 in both runs;
errors of gradients pass through AdamW into steps of the size of the rate, which grows by the
trainer's own schedule.

The rate is low on purpose, since a loss that goes up magnifies any rounding. At the shape above
3e-4 makes both runs spike, from step 9 on with a warm-up over 100 steps (rate 2.7e-5 there), at
step 2 without one; by then they differ by up to 13 times the bound.

Each step's line is printed as soon as both runs have it, and ``--log`` keeps every loss.
Exits with 1 where a step is beyond the bound.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
from page_step import DTYPES, add_page, changes_of, take, trainer_of
from torch import Tensor

from specc.runtime.optimizer import Schedule
from specc.runtime.trainer import Training

ROUNDING = 2.0**-8  # relative: bf16 keeps 8 significant bits
MARK = "LOSS "


def main() -> int:
    options = parser().parse_args()
    if options.only:
        for loss in losses(options, options.only):
            print(f"{MARK}{loss!r}", flush=True)
        return 0
    print("bf16 runs first", file=sys.stderr, flush=True)
    low = list(in_process_of_its_own("bf16", options.log))
    print("| step | bf16 | float32 | difference | in units of 2^-8 x loss |\n|---|---|---|---|---|")
    shares = []
    for step, b in enumerate(in_process_of_its_own("float32", options.log), 1):
        a = low[step - 1]
        shares.append(abs(a - b) / (ROUNDING * b))
        print(f"| {step} | {a:.5f} | {b:.5f} | {a - b:+.5f} | {shares[-1]:.3f} |", flush=True)
    print(f"largest {max(shares):.3f}, median {statistics.median(shares):.3f}; the bound is 1")
    return int(not max(shares) <= 1)  # NaN is beyond it, too


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(top)
    top.add_argument("--steps", type=int, default=20)
    top.add_argument("--rate", type=float, default=3e-5)
    top.add_argument("--warmup", type=int, default=100, help="steps until the rate is reached")
    top.add_argument("--log", type=Path, help="append each run's losses to this file")
    top.add_argument("--only", choices=tuple(DTYPES), help=argparse.SUPPRESS)
    return top


def in_process_of_its_own(dtype: str, log: Path | None) -> Iterator[float]:
    """Each loss as soon as it is known. Exits where the run ends before its last step."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", dtype]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if not line.startswith(MARK):
                continue
            if log is not None:
                with log.open("a") as file:
                    file.write(f"{dtype} {line[len(MARK) :]}")
            yield float(line[len(MARK) :])
    if run.returncode:
        sys.exit(f"the {dtype} run ended with status {run.returncode}")


def losses(options: argparse.Namespace, dtype: str) -> Iterator[float]:
    with ExitStack() as stack:
        trainer, config = trainer_of(
            options.page,
            changes_of(options.set),
            stack,
            Training(compile=True),
            device=options.device,
            dtype=dtype,
        )
        batches = learnable(config.vocab_size, options.batch, options.length, options.steps)
        rate = Schedule(options.rate, options.rate / 10, options.warmup, 10 * options.warmup)
        for step, ids in enumerate(batches):
            yield float(take(trainer, step, ids, rate(step)))


def learnable(vocab: int, batch: int, length: int, count: int) -> list[Tensor]:
    """``count`` batches [batch, length + 1]: by Zipf's law, a third of the ids the one before."""
    generator = torch.Generator().manual_seed(1)
    odds = 1 / torch.arange(1, vocab + 1).float()
    places = torch.arange(length + 1)
    found = []
    for _ in range(count):
        drawn = torch.multinomial(odds, batch * (length + 1), True, generator=generator)
        anew = torch.rand((batch, length + 1), generator=generator) > 1 / 3
        last = torch.where(anew, places, 0).cummax(1).values
        found.append(drawn.view(batch, length + 1).gather(1, last))
    return found


if __name__ == "__main__":
    sys.exit(main())
