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
trainer's own schedule. (Without its warm-up the loss goes up to 34 at the second step, in both
runs, and what blows up magnifies any rounding: up to 5.5 times the bound, measured.)
Exits with 1 where a step is beyond the bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack

import torch
from page_step import DTYPES, add_page, changes_of, take, trainer_of
from torch import Tensor

from specc.runtime.optimizer import Schedule
from specc.runtime.trainer import Training

ROUNDING = 2.0**-8  # relative: bf16 keeps 8 significant bits
MARK = "LOSSES "


def main() -> int:
    options = parser().parse_args()
    if options.only:
        print(MARK + json.dumps(losses(options, options.only)), flush=True)
        return 0
    low, high = (in_process_of_its_own(dtype) for dtype in ("bf16", "float32"))
    print("| step | bf16 | float32 | difference | in units of 2^-8 x loss |\n|---|---|---|---|---|")
    shares = []
    for step, (a, b) in enumerate(zip(low, high, strict=True), 1):
        shares.append(abs(a - b) / (ROUNDING * b))
        print(f"| {step} | {a:.5f} | {b:.5f} | {a - b:+.5f} | {shares[-1]:.3f} |")
    print(f"largest {max(shares):.3f}, median {statistics.median(shares):.3f}; the bound is 1")
    return int(not max(shares) <= 1)  # NaN is beyond it, too


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(top)
    top.add_argument("--steps", type=int, default=20)
    top.add_argument("--rate", type=float, default=3e-4)
    top.add_argument("--warmup", type=int, default=100, help="steps until the rate is reached")
    top.add_argument("--only", choices=tuple(DTYPES), help=argparse.SUPPRESS)
    return top


def in_process_of_its_own(dtype: str) -> list[float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--only", dtype]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    found = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not found:
        sys.exit(f"the {dtype} run ended with status {done.returncode}")
    return list(json.loads(found[-1][len(MARK) :]))


def losses(options: argparse.Namespace, dtype: str) -> list[float]:
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
        found = [take(trainer, i, ids, rate(i)) for i, ids in enumerate(batches)]
        return [float(loss) for loss in found]


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
