"""Mixes of ep, etp, tp, pp and dp, and a step of a page with experts at each, compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from layout_step import page_of

from specc.runtime.layouts import Degrees
from specc.runtime.mesh import Mesh
from specc.runtime.one_step import CLOSE, Case, Shape, alone, differences, one_step
from specc.runtime.pipeline_schedules import SCHEDULES
from specc.runtime.verify_worker import cases, reference

SHAPE = Shape(sequences=16)  # pp 4 x dp 2 takes 16 micro-batches
LAYERS = 4
DISPATCHERS = ("alltoall", "allgather")
POWERS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Run:
    """A case, and how tokens reach their experts in it."""

    case: Case
    dispatcher: str

    def __str__(self) -> str:
        return f"{self.case}, {self.dispatcher}"


def mixes(processes: int) -> list[Degrees]:
    """Every mix that has so many processes and no more stages than layers: ep {1, 2, 4} x etp
    {1, 2} x tp, with sequence parallel and without, x pp by each schedule x dp."""
    return [
        mix
        for tp in POWERS[:3]
        for pp in POWERS[:3]
        if processes % (tp * pp) == 0
        for sp in ((False, True) if tp > 1 else (False,))
        for schedule in (SCHEDULES if pp > 1 else ("1f1b",))
        for mix in _divided(
            Degrees(tp=tp, pp=pp, dp=processes // tp // pp, sequence_parallel=sp, schedule=schedule)
        )
        if mix.stages <= LAYERS
    ]


def _divided(degrees: Degrees) -> Iterator[Degrees]:
    """With each ep and etp; where FSDP takes part, by each stage of ZeRO in turn."""
    for number, (ep, etp) in enumerate((ep, etp) for ep in POWERS[:3] for etp in POWERS[:2]):
        if degrees.copy_size % (ep * etp) == 0:
            stage = degrees.zero
            if stage == 3:
                stage = (3, 2, 1)[number % 3]
            yield replace(degrees, ep=ep, etp=etp, zero=stage)


def runs(mix: Degrees, turn: int, *, one_loss: bool) -> list[Run]:
    """How a mix is run: whole sequences, and packed ones in parts, by both dispatchers in turn.

    ``one_loss``: a loss is of all data parallel ranks' micro-batches of a turn, and one process,
    which has one of them in a turn, has the same only where dp is 1.
    """
    if one_loss and mix.dp > 1:
        return []
    return [
        Run(case, DISPATCHERS[(turn + number) % 2])
        for number, case in enumerate(cases(mix, "per_token", packed=True))
    ]


def write_alone(file: Path, folder: Path, case: Case) -> None:
    """The values that a page is given and its step in one process, where they are not yet there."""
    written = alone_file(folder, file, case)
    if not written.exists():
        page = page_of(str(file))
        values, step = alone(page, page.config(), case, SHAPE, Mesh.single())
        torch.save({"values": values, "step": step}, written)


def compare(file: Path, folder: Path, given: list[Run]) -> dict[str, tuple[float, str]]:
    """On each rank: the largest difference of each run from one process, and whose it is."""
    found: dict[str, tuple[float, str]] = {}
    page = page_of(str(file))
    for run in given:
        expected = torch.load(alone_file(folder, file, reference(run.case, routed=True)))
        mesh = run.case.degrees.mesh(moe_token_dispatcher_type=run.dispatcher)
        got = one_step(page, page.config(), mesh, run.case, SHAPE, expected["values"])
        differ = differences(got, expected["step"], mesh, run.case, SHAPE)
        found[str(run)] = max((d if d == d else float("inf"), name) for name, d in differ.items())
    return found


def wrong(results: list[dict[str, tuple[float, str]]]) -> list[str]:
    """What differs by more than rounding, of every rank's ``compare``."""
    return [
        f"rank {rank}, {run}: {name} differs by {difference:.1e}"
        for rank, found in enumerate(results)
        for run, (difference, name) in found.items()
        if not difference <= CLOSE
    ]


def alone_file(folder: Path, file: Path, case: Case) -> Path:
    """Where the step of one process stands."""
    return folder / f"{file.stem} {case}.pt"
