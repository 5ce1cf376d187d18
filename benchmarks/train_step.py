"""Times a page's training step on one GPU: the trainer's own step, on random tokens.

    python benchmarks/train_step.py generated_examples/llama.py --compile \
        --set num_layers=8 hidden_size=4096 ffn_hidden_size=14336 --batch 2 --length 8192

Prints the median of the measured steps, tokens per second, the peak of memory, and (with --profile)
where the GPU's time goes, by kind of kernel. Recompute, loss chunks, FSDP and packed documents as
`specc train` has them.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

import torch
from kernels import breakdown
from page_step import DTYPES, add_page, changes_of, take, trainer_of
from timing import Timing, random_batches, time_steps
from torch import Tensor

from specc.runtime.recompute import Recompute
from specc.runtime.trainer import Trainer, Training


def main() -> None:
    options = parser().parse_args()
    how = Training(
        compile=options.compile,
        zero=options.zero or 3,
        fsdp=True if options.zero else None,
        recompute=recompute(options),
    )
    with ExitStack() as stack:
        trainer, config = trainer_of(
            options.page,
            changes_of(options.set),
            stack,
            how,
            device=options.device,
            dtype=options.dtype,
            loss_chunks=options.loss_chunks,
            recompute_core_attn=how.recompute.core_attention,
        )
        count = options.warmup + options.steps
        batches = random_batches(config.vocab_size, options.batch, options.length, min(count, 16))
        starts = documents(options)

        def step(number: int, ids: Tensor) -> Tensor:
            return take(trainer, number, ids, starts=starts)

        timing = time_steps(
            step,
            batches,
            warmup=options.warmup,
            steps=options.steps,
            running=options.steps,
            device=options.device,
        )
        report(options, trainer, timing)
        if options.profile:
            print(*breakdown(lambda: step(count, batches[0])).lines(), sep="\n")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(top)
    top.add_argument("--steps", type=int, default=8)
    top.add_argument("--warmup", type=int, default=4)
    top.add_argument("--dtype", default="bf16", choices=tuple(DTYPES))
    top.add_argument("--compile", action="store_true")
    top.add_argument("--profile", action="store_true")
    top.add_argument("--zero", type=int, help="FSDP on the one rank, at this stage of ZeRO")
    top.add_argument("--recompute", default="none", choices=("none", "selective", "full"))
    top.add_argument("--recompute-every", type=int, default=1)
    top.add_argument("--recompute-modules", default="", help="comma-separated")
    top.add_argument("--loss-chunks", type=int, default=1)
    top.add_argument("--packed-documents", type=int, help="their length, but for each row's last")
    return top


def report(options: argparse.Namespace, trainer: Trainer, timing: Timing) -> None:
    tokens = options.batch * options.length
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(
        f"{options.page.name} torch {torch.__version__} {parameters / 1e9:.2f} B "
        f"{options.batch} x {options.length} {options.dtype} compile {options.compile}: "
        f"{timing.median * 1e3:.1f} ms  {tokens / timing.median:,.0f} tokens/s  "
        f"(running {timing.running * 1e3:.1f} ms, {tokens / timing.running:,.0f} tokens/s)  "
        f"{timing.allocated:.1f} GiB ({timing.reserved:.1f} reserved)  "
        f"warm {timing.warmup:.0f} s  loss {timing.losses[0]:.4f} -> {timing.losses[-1]:.4f}",
        flush=True,
    )


def recompute(options: argparse.Namespace) -> Recompute:
    modules = options.recompute_modules
    return Recompute(
        options.recompute, options.recompute_every, tuple(modules.split(",")) if modules else ()
    )


def documents(options: argparse.Namespace) -> Tensor | None:
    """The place where each place's document begins, [b, s]; None: one document a row."""
    if options.packed_documents is None:
        return None
    places = torch.arange(options.length)
    starts = places - places % options.packed_documents
    return starts.expand(options.batch, -1).contiguous()


if __name__ == "__main__":
    sys.exit(main())
