"""Times a page's training step on several GPUs of one machine, at one layout after the other.

    python benchmarks/multi_gpu.py generated_examples/llama.py --compile --links \
        --layouts "dp2, tp2, tp2 sp, cp2, cp2:p2p, cp2:a2a, pp2, pp2:zbv" \
        --set num_layers=8 hidden_size=4096 ffn_hidden_size=14336

Each layout starts as many processes as it has ranks; one process is timed first, for the share of
its speed that a GPU keeps. Every data-parallel rank takes --batch sequences in --micro-batches
parts, so that a GPU has the same tokens under dp and fewer under the other axes: tokens/s are of a
GPU. --links times the collectives by themselves, for what the machine can do at best, and --profile
says what of a step is NCCL's. With --device cpu all of it runs on gloo, to rehearse.

Leave NVLink multicast off (NCCL_NVLS_ENABLE=0) where the GPUs are others' too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from kernels import breakdown
from page_step import DTYPES, add_page, changes_of
from timing import LEARNING_RATE, random_batches, time_steps, wait
from torch import Tensor

from specc.runtime.data import MicroBatch
from specc.runtime.launch import launch, launched, process_group, rank, world_size
from specc.runtime.layouts import Degrees, parse_layouts
from specc.runtime.page import load_page
from specc.runtime.recompute import Recompute
from specc.runtime.refusal import Refusal
from specc.runtime.trainer import Trainer, Training

REPORT = "SPECC_MULTI_GPU_REPORT"  # the file into which rank 0 of a layout writes its figures
# Of a collective, by device: on a GPU large enough for the links' full rate.
LINK_BYTES = {"cuda": 2**28, "cpu": 2**20}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    if launched():
        figures = links(options) if options.only_links else measured(options)
        if rank() == 0:
            Path(os.environ[REPORT]).write_text(json.dumps(figures))
        return 0
    return all_layouts(options, given)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(top)
    add = top.add_argument
    add("--layouts", default="dp2, tp2, tp2 sp, cp2, pp2", help="as `specc verify` writes them")
    add("--micro-batches", type=int, default=1, help="into which a rank's batch is parted")
    add("--steps", type=int, default=8)
    add("--warmup", type=int, default=4)
    add("--dtype", default="bf16", choices=tuple(DTYPES))
    add("--compile", action="store_true")
    add("--recompute", default="none", choices=("none", "selective", "full"))
    add("--links", action="store_true", help="time the collectives by themselves, too")
    add("--profile", action="store_true", help="how much of a step is NCCL's")
    add("--layout", help=argparse.SUPPRESS)  # of the processes that this one starts
    add("--only-links", action="store_true", help=argparse.SUPPRESS)
    return top


def all_layouts(options: argparse.Namespace, given: Sequence[str]) -> int:
    """Starts them one after the other and prints a line for each; 1 where one failed."""
    layouts = parse_layouts(options.layouts)
    failed = 0
    if options.links:
        for size in sorted({layout.size for layout in layouts if layout.size > 1}):
            status, figures = started([*given, "--only-links"], size)
            failed |= status
            print(f"{size} ranks: {link_words(figures)}", flush=True)
    print(HEAD, flush=True)
    alone: float | None = None
    for layout in [Degrees(), *layouts]:
        status, figures = started([*given, "--layout", str(layout)], layout.size)
        failed |= status
        if layout.size == 1:
            alone = figures.get("tokens")
        print(row(layout, figures, alone, status), flush=True)
    return failed


def started(arguments: Sequence[str], processes: int) -> tuple[int, dict[str, Any]]:
    """The exit status of so many processes of this program, and what rank 0 reported."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        os.environ[REPORT] = str(file)
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        status = launch(Path(__file__).stem, arguments, processes)
        return status, json.loads(file.read_text()) if file.is_file() else {}


HEAD = (
    "| layout | GPUs | tokens/s per GPU | of one GPU's | ms | GiB, most of any | NCCL ms | loss |\n"
    "|---|---|---|---|---|---|---|---|"
)


def row(layout: Degrees, figures: dict[str, Any], alone: float | None, status: int) -> str:
    if not figures:
        return f"| {layout} | {layout.size} | failed with status {status} | | | | | |"
    share = f"{figures['tokens'] / alone:.1%}" if alone else ""
    nccl = "" if figures["nccl"] is None else f"{figures['nccl']:.1f}"
    return (
        f"| {layout} | {layout.size} | {figures['tokens']:,.0f} | {share} | "
        f"{figures['seconds'] * 1e3:.1f} | {figures['memory']:.1f} | {nccl} | "
        f"{figures['losses'][0]:.4f} to {figures['losses'][-1]:.4f} |"
    )


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One layout's figures: rank 0's clock, and the largest memory of any rank."""
    (layout,) = parse_layouts(options.layout) if options.layout != "one process" else (Degrees(),)
    how = Training(
        accumulation=options.micro_batches,
        compile=options.compile,
        zero=layout.stage or 3,
        fsdp=None if layout.stage else False,
        recompute=Recompute(options.recompute),
        schedule=layout.schedule,
    )
    with ExitStack() as stack:
        stack.enter_context(process_group(options.device))
        mesh = layout.mesh(
            device=options.device, dtype=DTYPES[options.dtype], compiled=options.compile
        )
        page = load_page(options.page)
        config = page.config(changes_of(options.set))
        trainer = Trainer(page, config, mesh, how, device=options.device)
        count = options.warmup + options.steps
        whole = random_batches(
            config.vocab_size, options.batch * layout.dp, options.length, min(count, 16)
        )
        step = stepper(trainer, options.batch, options.micro_batches)
        timing = time_steps(
            step,
            whole,
            warmup=options.warmup,
            steps=options.steps,
            running=options.steps,
            device=options.device,
        )
        memory = torch.tensor(timing.allocated, device=trainer.device)
        if layout.size > 1:
            dist.all_reduce(memory, op=dist.ReduceOp.MAX)
        nccl = None
        if options.profile and options.device == "cuda":
            nccl = breakdown(lambda: step(count, whole[0])).kinds.get("collectives", 0.0)
        tokens = options.batch * layout.dp * options.length / layout.size
        return {
            "tokens": tokens / timing.running,
            "seconds": timing.running,
            "memory": float(memory),
            "nccl": nccl,
            "losses": timing.losses,
        }


def stepper(trainer: Trainer, batch: int, micro_batches: int) -> Callable[[int, Tensor], Tensor]:
    """A step on the token ids [b, s + 1] of all ranks, of which this one takes its part."""
    if batch % micro_batches:
        raise Refusal(f"--micro-batches {micro_batches} does not divide --batch {batch}.")
    size, first = batch // micro_batches, trainer.mesh.dp.rank * batch

    def step(number: int, ids: Tensor) -> Tensor:
        parts = [ids[first + i * size : first + (i + 1) * size] for i in range(micro_batches)]
        batches = [
            MicroBatch(part[:, :-1].contiguous(), part[:, 1:].contiguous(), first + i * size)
            for i, part in enumerate(parts)
        ]
        loss, _ = trainer.step(number, LEARNING_RATE, batches)
        return trainer.summed(loss)

    return step


def links(options: argparse.Namespace) -> dict[str, float]:
    """GB/s over a rank's links (bus bandwidth, as nccl-tests counts it) of each collective."""
    with process_group(options.device):
        size = world_size()
        device = torch.device(options.device)
        count = LINK_BYTES[options.device] // 2 // size * size
        whole = torch.zeros(count, dtype=torch.bfloat16, device=device)
        part = torch.zeros(count // size, dtype=torch.bfloat16, device=device)
        moved = {
            "all_gather": (lambda: dist.all_gather_into_tensor(whole, part), 1.0),
            "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole), 1.0),
            "all_reduce": (lambda: dist.all_reduce(whole), 2.0),
            "all_to_all": (lambda: dist.all_to_all_single(torch.empty_like(whole), whole), 1.0),
        }
        found = {}
        for name, (call, times) in moved.items():
            seconds = median_seconds(call, options.device)
            found[name] = times * count * 2 * (size - 1) / size / seconds / 1e9
        return found


def median_seconds(call: Callable[[], object], device: str, repeats: int = 10) -> float:
    seconds = []
    for number in range(repeats + 3):
        dist.barrier()
        wait(device)
        begin = time.perf_counter()
        call()
        wait(device)
        if number >= 3:
            seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[repeats // 2]


def link_words(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:.0f} GB/s" for name, rate in figures.items()) or "failed"


if __name__ == "__main__":
    sys.exit(main())
