"""Times a page's training step on one GPU: the trainer's own step, on random tokens.

    python benchmarks/train_step.py generated_examples/llama.py --compile \
        --set num_layers=8 hidden_size=4096 ffn_hidden_size=14336 --batch 2 --length 8192

Prints the median of the measured steps, tokens per second, memory, and (with --profile) the GPU
time by kind of kernel.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from specc.runtime import Mesh
from specc.runtime.data import MicroBatch
from specc.runtime.launch import process_group
from specc.runtime.page import load_page
from specc.runtime.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=NUMBER")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "float32"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()

    page = load_page(options.page)
    changes = {k: float(v) if "." in v else int(v) for k, v in (s.split("=") for s in options.set)}
    config = page.config(changes)
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    with process_group(options.device):
        mesh = Mesh.launch(device=options.device, dtype=dtype, compiled=options.compile)
        trainer = Trainer(page, config, mesh, device=options.device, compile_layers=options.compile)
        batches = [_batch(options, config, i) for i in range(options.warmup + options.steps)]
        losses: list[torch.Tensor] = []
        start = time.perf_counter()
        for i in range(options.warmup):
            losses.append(trainer.step(i, 1e-4, [batches[i]])[0])
        _wait(options.device)
        warm = time.perf_counter() - start
        times = []
        for i in range(options.warmup, len(batches)):
            begin = time.perf_counter()
            losses.append(trainer.step(i, 1e-4, [batches[i]])[0])
            _wait(options.device)
            times.append(time.perf_counter() - begin)
        report(options, trainer, statistics.median(times), warm, losses)
        if options.profile:
            profile(trainer, batches[0], losses)


def report(
    options: Any, trainer: Trainer, seconds: float, warm: float, losses: list[torch.Tensor]
) -> None:
    tokens = options.batch * options.length
    parameters = sum(p.numel() for p in trainer.model.parameters())
    memory = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    print(
        f"{options.page.name} torch {torch.__version__} {parameters / 1e9:.2f} B "
        f"{options.batch} x {options.length} {options.dtype} compile {options.compile}: "
        f"{seconds * 1e3:.1f} ms  {tokens / seconds:,.0f} tokens/s  {memory:.1f} GiB  "
        f"warm {warm:.0f} s  loss {losses[0].item():.4f} -> {losses[-1].item():.4f}",
        flush=True,
    )


def profile(trainer: Trainer, batch: MicroBatch, losses: list[torch.Tensor]) -> None:
    """GPU milliseconds of a step by kind of kernel, and the longest kernels."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as seen:
        for i in range(2):
            losses.append(trainer.step(100 + i, 1e-4, [batch])[0])
        torch.cuda.synchronize()
    kinds = {
        "attention": ("fmha", "flash", "sdpa", "cudnn_generated"),
        "matrix products": ("gemm", "nvjet", "cutlass", "cublas"),
        "adam": ("adam",),
        "norm and clip": ("lpnorm", "multi_tensor", "foreach"),
        "fused": ("triton",),
        "copies": ("memcpy", "memset", "copy", "cat", "split"),
    }
    sums: dict[str, float] = {}
    longest: dict[str, float] = {}
    for event in seen.key_averages():
        milliseconds = event.self_device_time_total / 2e3
        name = event.key.lower()
        kind = next((k for k, words in kinds.items() if any(w in name for w in words)), "other")
        sums[kind] = sums.get(kind, 0.0) + milliseconds
        longest[event.key] = milliseconds
    print({k: round(v, 1) for k, v in sorted(sums.items(), key=lambda item: -item[1])})
    for name, milliseconds in sorted(longest.items(), key=lambda item: -item[1])[:30]:
        print(f"{milliseconds:8.2f} ms  {name[:110]}")


def _batch(options: Any, config: Any, seed: int) -> MicroBatch:
    generator = torch.Generator().manual_seed(seed)
    shape = (options.batch, options.length + 1)
    ids = torch.randint(config.vocab_size, shape, generator=generator)
    return MicroBatch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), 0)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
