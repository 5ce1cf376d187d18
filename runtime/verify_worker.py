"""One of the processes of `specc verify`: takes its part in the layouts that it is dealt.

Layouts of fewer processes than were started run side by side: the processes part into groups of
that size, and each group is a world of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .launch import rank, world_size
from .layouts import Degrees
from .mesh import Mesh
from .one_step import CLOSE, Case, Shape, Tensors, differences, one_step
from .page import LOSSES, Page, load_page
from .reduced import shallow
from .refusal import Refusal

PATIENCE = timedelta(minutes=2)  # for a rank that others wait for: it failed where they did not


@dataclass(frozen=True)
class Plan:
    """What is to be run: read from, and written to, a folder that all processes see.

    ``config`` has the fields of the copy that are not the page's own, ``whole`` those that were set
    for both. ``packed``: whether forward takes packed documents, ``routed``: whether tokens go to
    experts. Beside it in the folder stands what is compared with, an ``Alone`` each.
    """

    page: str
    config: dict[str, Any]
    whole: dict[str, Any]
    shape: Shape
    packed: bool
    routed: bool
    layouts: tuple[Degrees, ...]

    def write(self, folder: Path) -> None:
        (folder / "plan.json").write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path) -> Plan:
        values = json.loads((folder / "plan.json").read_text())
        values["shape"] = Shape(**values["shape"])
        return Plan(**values | {"layouts": tuple(Degrees(**v) for v in values["layouts"])})

    def cases(self, degrees: Degrees, loss: str | None) -> list[Case]:
        """How a layout is run."""
        return cases(degrees, loss, packed=self.packed)


def cases(degrees: Degrees, loss: str | None, *, packed: bool) -> list[Case]:
    """How a layout is run: whole sequences at once, then packed ones in two parts."""
    if degrees.pp == 1:
        whole, parts = 1, 2
    else:  # as few micro-batches as the schedule takes, and enough to fill the pipeline
        rounds = {"interleaved": degrees.pp, "dualpipev": degrees.stages}
        whole, parts = rounds.get(degrees.schedule, 1), 2 * degrees.pp
    in_parts = Case(degrees, accumulation=parts, packed=packed)
    return [Case(degrees, whole), in_parts] if loss in LOSSES else [Case(degrees)]


def reference(case: Case, *, routed: bool) -> Case:
    """What the one process runs that a case is compared with.

    Its micro-batches one after the other, where tokens are routed: an expert's capacity and the
    losses that even out the load are a micro-batch's. Else all at once, which is quicker.
    """
    parts = case.degrees.dp * case.accumulation if routed else 1
    return Case(accumulation=parts, packed=case.packed)


@dataclass(frozen=True)
class Outcome:
    """What came of one layout: "equal", "differs", "refused", or "failed" with an exception.

    ``largest`` is the largest difference, ``tensor`` whose; ``first`` is the first parameter whose
    difference is above rounding, ``wrong`` how many are. ``zero`` are tensors that are zero in one
    process too, and so say nothing. ``sentence`` is why it was refused or failed.
    """

    layout: Degrees
    status: str
    largest: float = 0.0
    tensor: str = ""
    first: str = ""
    wrong: int = 0
    zero: tuple[str, ...] = ()
    sentence: str = ""

    def write(self, folder: Path, number: int) -> None:
        """Whole, or not at all."""
        aside = folder / f"outcome-{number}.partial"
        aside.write_text(json.dumps(asdict(self)))
        aside.rename(folder / f"outcome-{number}.json")

    @staticmethod
    def read(folder: Path, number: int) -> Outcome | None:
        file = folder / f"outcome-{number}.json"
        if not file.exists():
            return None
        values = json.loads(file.read_text())
        values["layout"], values["zero"] = Degrees(**values["layout"]), tuple(values["zero"])
        return Outcome(**values)


def outcome(layout: Degrees, found: Mapping[str, float]) -> Outcome:
    """The verdict on the differences of one layout's tensors."""
    zero = tuple(name for name, d in found.items() if d != d)
    compared = {name: d for name, d in found.items() if d == d}
    # Clipped gradients are the others scaled: named where they alone differ.
    order = {n: (d > CLOSE, not n.startswith("clipped"), d) for n, d in compared.items()}
    tensor = max(order, key=lambda name: order[name])
    wrong = [name for name, d in compared.items() if d > CLOSE]
    parameters = [name for name in wrong if " " in name]
    return Outcome(
        layout,
        "differs" if wrong else "equal",
        compared[tensor],
        tensor,
        (parameters or wrong or [""])[0],
        len(wrong),
        zero,
    )


@dataclass(frozen=True)
class Alone:
    """The values and the step of one process, and ``rounding``'s sizes, of a ``reference``."""

    values: Tensors
    step: Tensors
    sizes: dict[str, float]

    def write(self, folder: Path, case: Case) -> None:
        torch.save(vars(self), _alone(folder, case))

    @staticmethod
    def read(folder: Path, case: Case) -> Alone:
        return Alone(**torch.load(_alone(folder, case)))


def _alone(folder: Path, case: Case) -> Path:
    return folder / f"{'packed' if case.packed else 'whole'}-{case.accumulation}.pt"


def make_config(page: Page, values: Mapping[str, Any]) -> Any:
    """The page's Config with these fields, as they come out of JSON; None where it has none."""
    if page.config_class is None:
        return None
    tupled = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return page.config_class(**tupled)


def run_layout(plan: Plan, page: Page, folder: Path, degrees: Degrees) -> Outcome:
    """This rank's part of a layout, in a world of its size, and the verdict of all its ranks."""
    try:
        own = _compared(plan, page, folder, degrees)
    except (Refusal, ValueError, NotImplementedError) as error:
        # What a layer said, without what the trainer says around it.
        own = Outcome(degrees, "refused", sentence=str(error.__cause__ or error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        own = Outcome(degrees, "failed", sentence=said)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    worst: Outcome = max(every, key=_severity)
    return worst


def _severity(outcome: Outcome) -> tuple[int, float]:
    order = ("equal", "refused", "differs", "failed")
    return order.index(outcome.status), outcome.largest


def _compared(plan: Plan, page: Page, folder: Path, degrees: Degrees) -> Outcome:
    mesh = _mesh(
        replace(
            degrees,
            sequence_parallel=False,
            cp_comm_type="all_gather",
            zero=None,
            schedule="1f1b",
        )
    )
    mesh = replace(
        mesh, sequence_parallel=degrees.sequence_parallel, cp_comm_type=degrees.cp_comm_type
    )
    _ask_page(plan, page, mesh)
    config = make_config(page, plan.config)
    found: dict[str, float] = {}
    for case in plan.cases(degrees, page.loss):
        alone = Alone.read(folder, reference(case, routed=plan.routed))
        step = one_step(page, config, mesh, case, plan.shape, alone.values)
        differ = differences(step, alone.step, mesh, case, plan.shape, alone.sizes)
        for name, difference in differ.items():
            before = found.get(name, difference)
            # The greater; of a NaN, which says nothing, the other.
            found[name] = difference if before != before else max(before, difference)
    return outcome(degrees, found)


def _ask_page(plan: Plan, page: Page, mesh: Mesh) -> None:
    """Raises Refusal where the page's own layers do not take the mesh.

    The copy's may: its numbers are others.
    """
    key = (mesh.tp.size, mesh.cp.size, mesh.sequence_parallel, mesh.cp_comm_type)
    if key not in _taken:
        whole = make_config(page, plan.whole)
        page.build(mesh, None if whole is None else shallow(whole), device="meta")
        _taken.add(key)


_taken: set[tuple[int, int, bool, str]] = set()


@cache
def _mesh(degrees: Degrees) -> Mesh:
    """One for all layouts of these degrees: each makes process groups, which have threads."""
    return degrees.mesh()


def dealt(
    layouts: Sequence[Degrees], processes: int, own_rank: int
) -> Iterator[tuple[int, int, list[int]]]:
    """For each size of a layout: the size, the number of this rank's group, and the layouts that
    the group runs, by their place.
    """
    for size in sorted({degrees.size for degrees in layouts}):
        group, groups = own_rank // size, processes // size
        if group < groups:
            numbers = [n for n, degrees in enumerate(layouts) if degrees.size == size]
            yield size, group, numbers[group::groups]


def main(folder: Path) -> int:
    """Runs this process's layouts; the first rank of a group writes what came of each."""
    plan = Plan.read(folder)
    page = load_page(plan.page)
    torch.set_num_threads(1)
    for size, group, numbers in dealt(plan.layouts, world_size(), rank()):
        if not numbers:
            continue
        store = dist.FileStore(str(folder / f"store-{size}-{group}"), size)  # type: ignore[attr-defined]  # not in its stubs
        dist.init_process_group(
            "gloo", store=store, rank=rank() % size, world_size=size, timeout=PATIENCE
        )
        for number in numbers:
            found = run_layout(plan, page, folder, plan.layouts[number])
            if rank() % size == 0:
                found.write(folder, number)
        _mesh.cache_clear()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
