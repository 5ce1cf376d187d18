"""What one rank of a big job communicates and holds, measured without the job, on one CPU.

    python benchmarks/simulate.py generated_examples/llama.py "tp8 sp dp4" --set num_layers=80 \
        hidden_size=8192 num_attention_heads=64 num_query_groups=8 ffn_hidden_size=28672

Runs the page's own training step over a fake process group, on tensors that have shapes and no
memory, and prints what it did beside what the formulas say: tests/simulation holds the two equal.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "simulation"))

import torch
from one_rank import Job, Measured, fake_group, simulate
from tracker import Place

from specc.runtime.communication import (
    Collective,
    end_collectives,
    layer_collectives,
    sharding_collectives,
    step_collectives,
)
from specc.runtime.data import MicroBatch
from specc.runtime.layouts import parse_layouts
from specc.runtime.memory import saved_activations
from specc.runtime.page import load_page
from specc.runtime.peak_memory import peak_memory
from specc.runtime.recompute import Recompute
from specc.runtime.trainer import Trainer
from specc.runtime.workload import Workload

MIB, GIB = 1 << 20, 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("layout", help='as `specc verify` takes it: "tp8 sp cp2:p2p dp4 zero3"')
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=NUMBER")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--recompute", default="none", choices=("none", "selective", "full"))
    parser.add_argument("--recompute-every", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--cuda", action="store_true", help="also run it on a GPU, with memory")
    parser.add_argument("--top", type=int, default=12, help="rows on what is held at the peak")
    options = parser.parse_args()
    numbers = {k: float(v) if "." in v else int(v) for k, v in (s.split("=") for s in options.set)}
    (degrees,) = parse_layouts(options.layout)
    job = Job(
        options.page,
        numbers,
        degrees,
        options.length,
        batch=options.batch,
        accumulation=options.accumulation,
        rank=options.rank,
        training={"recompute": Recompute(options.recompute, options.recompute_every)},
    )
    got = simulate(job, explain=options.top > 0)
    print(
        f"{job.page.name}, {got.shape.parameters / 1e9:.2f} B parameters, {got.shape.layers} "
        f"layers; {degrees} of {degrees.size} ranks, rank {job.rank}; {job.batch} x {job.length} "
        f"x {job.accumulation}; torch {torch.__version__}: {got.operations} operations, "
        f"{got.seconds:.0f} s a step\n"
    )
    report(got, job.workload)
    if options.cuda:
        real = allocated(job)
        print(_line("allocated", _size(real), f"{got.peak / real - 1:+.2%}"))
    for (place, operation), size in got.at_peak.most_common(options.top):
        print(f"    {size / GIB:8.3f} GiB at the peak from {operation} in {_words(place)}")


def report(got: Measured, work: Workload) -> None:
    """Like layers in one row, and the step as a whole; measured beside formula."""
    print(_line("", "measured", "formula"))
    groups: list[tuple[list[int], list[str]]] = []
    for layer in range(got.shape.layers):
        traffic = layer_collectives(got.shape, work, layer)
        saved = _size(saved_activations(got.shape, work, layer))
        rows = [
            _row("forward", got.between_ranks(Place("forward", layer)), traffic.forward),
            _row("backward", got.between_ranks(Place("backward", layer)), traffic.backward),
            _line("saved", _size(got.saved[layer]), saved),
        ]
        if groups and groups[-1][1] == rows:
            groups[-1][0].append(layer)
        else:
            groups.append(([layer], rows))
    for layers, rows in groups:
        print(f"layer {layers[0]}" + (f" to {layers[-1]}, each" if len(layers) > 1 else ""))
        print("\n".join(rows))
    expected = end_collectives(got.shape, work).times(work.accumulation)
    for layer in range(got.shape.layers):
        expected += layer_collectives(got.shape, work, layer).times(work.accumulation)
    expected += sharding_collectives(got.shape, work) + step_collectives(got.shape, work)
    expected = got.counted(expected)
    seen = Counter(one for _, one in got.collectives)
    print("the step")
    for axis in sorted({one.axis for one in seen | expected}):
        over = [{o: n for o, n in found.items() if o.axis == axis} for found in (seen, expected)]
        print(_row(f"over {axis}", *over))
    peak = peak_memory(got.shape, work)
    print(_line("peak", _size(got.peak), f"{_size(peak.total)}, {peak.total / got.peak - 1:+.2%}"))
    print(_line("", _words(max(got.peaks, key=lambda at: got.peaks[at])), peak.moment))
    for part in ("parameters", "gradients", "optimizer", "activations", "gathered", "working"):
        print(_line("", part, _size(getattr(peak, part))))


def allocated(job: Job) -> int:
    """The peak of CUDA's allocator in the second step, over the same fake process group."""
    page = load_page(job.page)
    with fake_group(job.degrees.size, job.rank):
        mesh = job.degrees.mesh(device="cuda", dtype=torch.bfloat16)
        trainer = Trainer(page, page.config(job.numbers), mesh, job.how, device="cuda")
        ids = torch.randint(1000, (job.batch, job.length))
        batches = [MicroBatch(ids, ids, i * job.batch) for i in range(job.accumulation)]
        for step in range(2):
            torch.cuda.reset_peak_memory_stats()
            trainer.step(step, 1e-4, batches)
            torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()


def _row(name: str, seen: Mapping[Collective, int], expected: Mapping[Collective, int]) -> str:
    formula = "the same" if Counter(seen) == Counter(expected) else _sums(expected)
    return _line(name, _sums(seen), formula)


def _line(name: str, measured: str, formula: str) -> str:
    return f"    {name:16}{measured:>54}{formula:>24}"


def _sums(collectives: Mapping[Collective, int]) -> str:
    """Number and bytes of each kind."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one, n in collectives.items():
        counts[one.kind] += n
        sizes[one.kind] += n * one.bytes
    short = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR", "all_to_all": "A2A"}
    return ", ".join(f"{counts[k]} {short[k]} {_size(sizes[k])}" for k in sorted(counts)) or "none"


def _size(count: int) -> str:
    if count < MIB:
        return f"{count:,} B"
    return f"{count / GIB:,.2f} GiB" if count >= 10 * GIB else f"{count / MIB:,.2f} MiB"


def _words(place: Place) -> str:
    return place.phase + ("" if place.layer is None else f" of layer {place.layer}")


if __name__ == "__main__":
    main()
