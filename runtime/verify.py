"""Whether a page computes the same at every layout: ``specc verify PAGE``.

A small copy of the page takes one training step in one process and the same step in processes on
this machine's CPU at each layout; loss, gradients and initial values are compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import launch
from .layouts import Degrees, fitting, parse_layouts
from .mesh import Mesh
from .one_step import CLOSE, Case, alone, rounding
from .options import change
from .page import Number, Page, load_page
from .reduced import LENGTH, narrow_only, small
from .refusal import Refusal
from .trainer import takes_documents
from .verify_worker import Alone, Outcome, Plan

LIMIT = 30_000_000  # parameters of a copy: a step at a layout takes seconds above


@dataclass(frozen=True)
class Copy:
    """A copy of a page that runs in one process, and the steps that it took there, by ``packed``.

    ``config`` is None where the page has none.
    """

    config: Any
    whole: Any
    length: int
    steps: Mapping[bool, Alone]

    @property
    def described(self) -> str:
        """The numbers that are other ones than the page's."""
        old, new = Page.values(self.whole), Page.values(self.config)
        changed = [f"{name}={new[name]!r}" for name in new if new[name] != old[name]]
        return f"a copy with {', '.join(changed)}" if changed else "as it stands"


def reduced(page: Page, layouts: Sequence[Degrees], changes: Mapping[str, Number]) -> Copy:
    """The smallest copy of the page that takes a step in one process; ``changes`` are kept in it.

    Raises Refusal where none does, with what each one that was tried said.
    """
    whole = page.config(changes)
    cut = math.lcm(1, *map(_pieces, layouts))
    length = -(-LENGTH // cut) * cut
    refused: list[str] = []
    for config in _smaller(page, whole, layouts, length, changes):
        try:
            built = page.build(Mesh.single(), config, device="meta")
            count = sum(p.numel() for p in built.parameters())
            if count > LIMIT:
                refused.append(f"{count:,} parameters are more than {LIMIT:,}")
                continue
            own = min(length, getattr(config, "max_position_embeddings", length))
            steps = {
                packed: _alone(page, config, Case(packed=packed), own)
                for packed in ((False, True) if takes_documents(built) else (False,))
            }
        except Exception as error:  # whatever the page's classes say of numbers that are not theirs
            refused.append(str(error.__cause__ or error).strip().splitlines()[0])
            continue
        return Copy(config, whole, own, steps)
    raise Refusal(
        f"No copy of {page.path} that is small enough could be run in one process "
        f"({'; '.join(dict.fromkeys(refused))}): give numbers that make one, as in "
        "--set num_layers=2."
    )


def _alone(page: Page, config: Any, case: Case, length: int) -> Alone:
    values, step = alone(page, config, case, length, Mesh.single())
    return Alone(values, step, rounding(page, config, case, length, values, step))


def _pieces(degrees: Degrees) -> int:
    """What has to divide a sequence: zigzag pieces over cp, and what sequence parallel cuts."""
    zigzag = 2 * degrees.cp if degrees.cp > 1 else 1
    return math.lcm(zigzag, degrees.cp * (degrees.tp if degrees.sequence_parallel else 1))


def _smaller(
    page: Page, whole: Any, layouts: Sequence[Degrees], length: int, changes: Mapping[str, Number]
) -> Iterator[Any]:
    """Configs to try, the smallest first: all sizes small, widths as they are, the page's own."""
    if whole is None:
        yield None
        return
    # Heads are dealt out over tp, and over cp too where attention exchanges them for positions.
    parts = math.lcm(1, *(d.tp * (d.cp if d.cp_comm_type == "a2a" else 1) for d in layouts))
    tried = []
    ways: tuple[Callable[[], Any], ...] = (
        lambda: small([whole], layers=True, parts=parts)[0],
        lambda: narrow_only([whole], layers=True)[0],
        lambda: whole,
    )
    for shrink in ways:
        try:
            config = dataclasses.replace(shrink(), **changes)
            most = getattr(whole, "max_position_embeddings", None)
            if isinstance(most, int) and "max_position_embeddings" not in changes:
                config = dataclasses.replace(config, max_position_embeddings=min(most, length))
            config = _without_draws(config)
        except Exception:  # the config's own rules
            continue
        if config not in tried:
            tried.append(config)
            yield config


def _without_draws(config: Any) -> Any:
    """Attention's dropout draws from torch's generator, and not the same at another layout.

    A probability of 1e-30 drops nothing, and is above 0 where the page was written for that.
    """
    given = getattr(config, "attention_dropout", 0.0)
    return dataclasses.replace(config, attention_dropout=1e-30) if given > 0 else config


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
        for packed, step in copy.steps.items():
            step.write(folder, packed=packed)
        Plan(
            page=str(page.path.resolve()),
            config=None if copy.config is None else Page.values(copy.config),
            whole=None if copy.whole is None else Page.values(copy.whole),
            length=copy.length,
            packed=True in copy.steps,
            layouts=tuple(layouts),
        ).write(folder)
        found: list[Outcome] = []
        ended = threading.Event()
        reader = threading.Thread(target=_read, args=(folder, len(layouts), found, ended, say))
        reader.start()
        try:
            status = launch.launch("specc.runtime.verify_worker", [name], processes)
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
    layouts = _layouts(options)
    page = load_page(options.page)
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


def _layouts(options: argparse.Namespace) -> list[Degrees]:
    if options.layouts is None:
        if options.nproc < 2:
            raise Refusal(
                f"--nproc {options.nproc} is below 2, and 1 process has nothing to share."
            )
        return fitting(options.nproc, every_sharding=options.all)
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
    top.add_argument("--nproc", type=int, default=4, metavar="N", help="how many processes (4)")
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
