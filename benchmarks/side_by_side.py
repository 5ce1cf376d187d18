"""Times a page beside its rivals: one machine, one run, in turn, on the same shape and tokens.

    python benchmarks/side_by_side.py --rounds 2
    python benchmarks/side_by_side.py --contenders page,torchtitan --layers 4 --length 4096

Each contender runs in a process of its own, so that all have the whole GPU; in the next round they
come in the reverse order, so that a GPU that slows as it warms treats all alike. The median is over
the steps of all rounds. A rival that is not installed is named as not run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from timing import Shape, Timing, add_shape, random_batches, shape_of, time_steps

PAGE = Path(__file__).resolve().parent.parent / "generated_examples" / "llama.py"
CONTENDERS = {  # name -> (module, the packages that it needs installed)
    "page": ("page_step", ()),
    "flat Llama": ("rivals.flat_llama", ()),
    "torchtitan": ("rivals.titan", ("torchtitan",)),
    "Hugging Face": ("rivals.hugging_face", ("transformers",)),
    "Hugging Face + Liger": ("rivals.hugging_face_liger", ("transformers", "liger_kernel")),
}
MARK = "TIMING "  # begins the one line that a contender's process prints for this one


@dataclass
class Row:
    """What is known of one contender."""

    versions: str
    timings: list[Timing]
    trouble: str | None = None  # why it has no timings


def main() -> int:
    options = parser().parse_args()
    if options.only:
        contend(options)
        return 0
    names = list(CONTENDERS) if options.contenders is None else options.contenders.split(",")
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        sys.exit(f"{unknown[0]!r} is no contender; there are {', '.join(CONTENDERS)}")
    rows = {name: Row("", []) for name in names}
    for turn in range(options.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            if rows[name].trouble is None:
                run(name, rows[name])
                print(f"round {turn + 1}, {name}: {told(rows[name])}", flush=True)
    print(table(rows, shape_of(options)))
    return int(any(row.trouble and row.trouble.startswith("failed") for row in rows.values()))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_shape(top)
    top.add_argument("--page", type=Path, default=PAGE)
    top.add_argument("--contenders", help="comma-separated: " + ",".join(CONTENDERS))
    top.add_argument("--rounds", type=int, default=2)
    top.add_argument("--warmup", type=int, default=4)
    top.add_argument("--steps", type=int, default=10)
    top.add_argument("--running", type=int, default=10, help="steps that nothing waits between")
    top.add_argument("--device", default="cuda")
    top.add_argument("--only", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    return top


def contend(options: argparse.Namespace) -> None:
    """The contender's own process: builds it, times it, prints the timing as JSON."""
    shape = shape_of(options)
    module = importlib.import_module(CONTENDERS[options.only][0])
    step: Callable[..., Any]
    if options.only == "page":
        step = module.build(options.page, shape, options.device)
    else:
        step = module.build(shape, options.device)
    count = options.warmup + options.steps + options.running
    batches = random_batches(shape.vocab, shape.batch, shape.length, min(count, 16))
    timing = time_steps(
        step,
        batches,
        warmup=options.warmup,
        steps=options.steps,
        running=options.running,
        device=options.device,
    )
    print(MARK + json.dumps({"versions": module.versions(), "timing": asdict(timing)}), flush=True)


def run(name: str, row: Row) -> None:
    """One round of one contender."""
    missing = [p for p in CONTENDERS[name][1] if importlib.util.find_spec(p) is None]
    if missing:
        row.trouble = f"not run: {' and '.join(missing)} not installed"
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not marked:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        print("\n".join(said[-15:]), file=sys.stderr, flush=True)
        row.trouble = f"failed with status {done.returncode}: {said[-1]}"
        return
    found = json.loads(marked[-1][len(MARK) :])
    row.versions = found["versions"]
    known = {field.name for field in fields(Timing)}
    row.timings.append(Timing(**{k: v for k, v in found["timing"].items() if k in known}))


def told(row: Row) -> str:
    if row.trouble:
        return row.trouble
    last = row.timings[-1]
    return (
        f"{last.median * 1e3:.1f} ms, {last.running * 1e3:.1f} running, {last.allocated:.1f} GiB, "
        f"{last.warmup:.0f} s of warm-up, loss {last.losses[0]:.4f} -> {last.losses[-1]:.4f}"
    )


def table(rows: dict[str, Row], shape: Shape) -> str:
    """Markdown: medians over all rounds' steps, the best and the slowest step, the peak."""
    head = (
        "| contender | tokens/s | ms | least to most | ms running | GiB | reserved | loss | with |"
    )
    lines = [head, "|---" * 9 + "|"]
    for name, row in rows.items():
        if row.trouble or not row.timings:
            lines.append(f"| {name} | {row.trouble or 'not run'} |" + " |" * 7)
            continue
        seconds = [s for timing in row.timings for s in timing.seconds]
        middle = statistics.median(seconds)
        running = statistics.median(timing.running for timing in row.timings)
        losses = row.timings[0].losses
        lines.append(
            f"| {name} | {shape.tokens / middle:,.0f} | {middle * 1e3:.1f} "
            f"| {min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f} | {running * 1e3:.1f} "
            f"| {max(t.allocated for t in row.timings):.1f} "
            f"| {max(t.reserved for t in row.timings):.1f} "
            f"| {losses[0]:.3f} to {losses[-1]:.3f} | {row.versions} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
