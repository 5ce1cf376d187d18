"""Whether a page computes the same at every layout: ``specc verify PAGE``.

A small copy of the page takes one training step in one process and the same step in processes on
this machine's CPU at each layout; loss, gradients and initial values are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import launch
from .layouts import Degrees, fitting, parse_layouts
from .one_step import CLOSE
from .options import change
from .page import Page, load_page
from .refusal import Refusal
from .verify_copy import Copy, changed, reduced
from .verify_worker import Outcome, Plan


def verify(
    page: Page,
    copy: Copy,
    layouts: Sequence[Degrees],
    processes: int,
    say: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """What comes of each layout; ``say`` hears of each in order, as soon as it is known.

    Raises Refusal where a process ended before all its layouts were run.
    """
    with tempfile.TemporaryDirectory(prefix="specc-verify-") as name:
        folder = Path(name)
        for case, step in copy.steps.items():
            step.write(folder, case)
        Plan(
            page=str(page.path.resolve()),
            config=changed(page.config(), copy.config),
            whole=changed(page.config(), copy.whole),
            shape=copy.shape,
            packed=any(case.packed for case in copy.steps),
            routed=copy.routed,
            layouts=tuple(layouts),
        ).write(folder)
        found: list[Outcome] = []
        ended = threading.Event()
        reader = threading.Thread(target=_read, args=(folder, len(layouts), found, ended, say))
        reader.start()
        try:
            status = launch.launch(f"{__package__}.verify_worker", [name], processes)
        finally:
            ended.set()
            reader.join()
    if len(found) < len(layouts):
        raise Refusal(
            f"The processes ended with status {status} after {len(found)} of {len(layouts)} "
            f"layouts, at {layouts[len(found)]}; what they said stands above."
        )
    return found


def _read(
    folder: Path,
    count: int,
    found: list[Outcome],
    ended: threading.Event,
    say: Callable[[Outcome], None],
) -> None:
    """Read the outcomes in order as they are written, until all are there or no more can come."""
    while len(found) < count:
        last = ended.is_set()
        outcome = Outcome.read(folder, len(found))
        if outcome is not None:
            found.append(outcome)
            say(outcome)
        elif last:
            return
        else:
            ended.wait(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status: 0 where all layouts that the page takes are equal, 1
    where one is not, 2 where nothing could be compared.
    """
    from .train import guarded

    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given))


def _main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    changes = dict(change(text) for text in options.set)
    page = load_page(options.page)
    layouts = _layouts(options, page)
    copy = reduced(page, layouts, changes)
    size = max(degrees.size for degrees in layouts)
    print(
        f"{page.path.name}, {copy.described}: {len(layouts)} layouts on up to {size} processes, "
        "each against one process",
        flush=True,
    )
    width = max(len(str(degrees)) for degrees in layouts)
    print(f"{'layout':{width}}  difference  of")
    outcomes = verify(page, copy, layouts, size, lambda o: print(row(o, width), flush=True))
    counts = {
        status: sum(o.status == status for o in outcomes)
        for status in ("equal", "differs", "failed", "refused")
    }
    print(f"{len(outcomes)} layouts: " + ", ".join(f"{n} {s}" for s, n in counts.items() if n))
    for line in findings(outcomes, copy):
        print(line)
    if counts["differs"] or counts["failed"]:
        return 1
    if not counts["equal"]:
        raise Refusal(
            f"{page.path} takes 0 of the {len(layouts)} layouts, so nothing was compared."
        )
    return 0


def row(outcome: Outcome, width: int) -> str:
    """A layout's line of the table."""
    start = f"{outcome.layout!s:{width}}  "
    if outcome.status in ("refused", "failed"):
        return f"{start}{outcome.status}: {outcome.sentence}"
    line = f"{start}{outcome.largest:<10.1e}  {outcome.tensor}"
    if outcome.status == "equal":
        return line
    return f"{line}  DIFFERS: {outcome.wrong} tensors, the first {outcome.first}"


def findings(outcomes: Sequence[Outcome], copy: Copy) -> Iterator[str]:
    """What a user has to know beside the table."""
    wrong = next((o for o in outcomes if o.status == "differs"), None)
    if wrong is not None:
        yield f"{wrong.layout}: the first that differs is {wrong.first}"
    if any(o.status == "equal" for o in outcomes):
        yield f"equal: no tensor differs by more than {CLOSE:g} of its largest entry"
    small = dict.fromkeys(n for s in copy.steps.values() for n in s.sizes if "gradient" in n)
    if small:
        yield f"zero but for rounding, compared by the largest gradient: {', '.join(small)}"
    zero = dict.fromkeys(name for o in outcomes for name in o.zero)
    if zero:
        yield f"not compared, zero in one process too: {', '.join(zero)}"


def _layouts(options: argparse.Namespace, page: Page) -> list[Degrees]:
    experts = bool(getattr(page.config(), "num_moe_experts", None))
    if options.layouts is None:
        if options.nproc < 2:
            raise Refusal(
                f"--nproc {options.nproc} is below 2, and 1 process has nothing to share."
            )
        return fitting(options.nproc, every_sharding=options.all, experts=experts)
    if options.all:
        raise Refusal("--all and --layouts both say which layouts; give 1 of the 2.")
    return parse_layouts(options.layouts)


def parser() -> argparse.ArgumentParser:
    """The options of `specc verify`."""
    top = argparse.ArgumentParser(
        prog="specc verify",
        description="Compare a page's loss and gradients at many layouts with one process.",
        allow_abbrev=False,
    )
    top.add_argument("page", type=Path, metavar="PAGE", help="a file that `specc compile` wrote")
    top.add_argument(
        "--layouts",
        metavar="LAYOUTS",
        help='such as "tp2 sp, cp2:a2a dp2 zero1"; all that fit --nproc if not given',
    )
    top.add_argument(
        "--all", action="store_true", help="each layout with every kind of sharding, too"
    )
    top.add_argument(
        "--nproc",
        type=int,
        default=4,
        metavar="N",
        help="the most processes of a layout (4), where --layouts does not say",
    )
    top.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=NUMBER",
        help="a number for the copy's Config; may be given again",
    )
    return top


if __name__ == "__main__":
    sys.exit(main())
