"""Layouts by their degrees: as text, and all of them that fit so many processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .mesh import CP_COMM_TYPES, Mesh
from .pipeline_schedules import SCHEDULES, SPLIT, seats
from .refusal import Refusal

_FORM = "words like tp2 sp cp2:p2p pp2:1f1b ep2 etp1 dp4 replicate2 zero3, a comma between layouts"
_DEGREES = {
    "tp": "tp",
    "cp": "cp",
    "pp": "pp",
    "dp": "dp",
    "zero": "zero",
    "ep": "ep",
    "etp": "etp",
    "replicate": "dp_replicate",
}


@dataclass(frozen=True)
class Degrees:
    """How many processes share what, and how: a mesh before it is launched.

    ``dp`` counts all data-parallel ranks; ``dp_replicate`` of them times the rest keep a copy each
    (HSDP). ``zero`` is the stage of FSDP: 1, 2 or 3, or 0 for no FSDP, where every rank holds whole
    parameters. None becomes the trainer's choice: 3 where there are ranks to share them, else 0.
    ``sequence_parallel`` is off where tp is 1, ``cp_comm_type`` "all_gather" where cp is.
    ``schedule`` orders the ``pp`` ranks of a pipeline, and is "1f1b" where pp is 1; where it
    computes weights' gradients apart, the trainer's choice of ``zero`` is 1. ``ep`` and ``etp``
    (``tp`` where it is None) divide a stage's ranks anew for experts, and make no process more.

    Raises ValueError for degrees that contradict each other.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    dp_replicate: int = 1
    sequence_parallel: bool = False
    cp_comm_type: str = "all_gather"
    zero: int | None = None
    pp: int = 1
    schedule: str = "1f1b"
    ep: int = 1
    etp: int | None = None

    def __post_init__(self) -> None:
        if self.etp is None:
            object.__setattr__(self, "etp", self.tp)
        for name in ("tp", "cp", "dp", "dp_replicate", "pp", "ep", "etp"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} has to be 1 at least")
        if self.dp % self.dp_replicate:
            raise ValueError(f"dp_replicate={self.dp_replicate} does not divide dp={self.dp}")
        if self.copy_size % (self.ep * self.expert_tp):
            raise ValueError(
                f"ep={self.ep} x etp={self.etp} does not divide the {self.copy_size} processes "
                "that share one copy of a stage's experts"
            )
        if self.cp_comm_type not in CP_COMM_TYPES:
            raise ValueError(
                f"cp_comm_type={self.cp_comm_type!r} is not one of {', '.join(CP_COMM_TYPES)}"
            )
        if self.zero not in (None, 0, 1, 2, 3):
            raise ValueError(f"zero={self.zero} is not a stage: 1, 2, 3, or 0 for no FSDP")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.pp == 1:
            object.__setattr__(self, "schedule", "1f1b")
        if self.zero is None:
            stage = 1 if self.schedule in SPLIT else 3
            object.__setattr__(self, "zero", stage if self.dp * self.cp > 1 else 0)
        if self.zero == 0 and self.dp_replicate > 1:
            raise ValueError(f"dp_replicate={self.dp_replicate} is FSDP's, and zero=0 is without")
        if self.tp == 1:
            object.__setattr__(self, "sequence_parallel", False)
        if self.cp == 1:
            object.__setattr__(self, "cp_comm_type", "all_gather")

    @staticmethod
    def of(mesh: Mesh, *, zero: int | None = None, schedule: str = "1f1b") -> Degrees:
        """Those of a launched mesh."""
        return Degrees(
            tp=mesh.tp.size,
            cp=mesh.cp.size,
            dp=mesh.dp.size,
            dp_replicate=mesh.dp_replicate.size,
            sequence_parallel=mesh.sequence_parallel,
            cp_comm_type=mesh.cp_comm_type,
            zero=zero if mesh.dp_cp.size > 1 else None,
            pp=mesh.pp.size,
            schedule=schedule,
            ep=mesh.ep.size,
            etp=mesh.etp.size,
        )

    @property
    def stage(self) -> int:
        """``zero``, which is a number once it is here."""
        return self.zero or 0

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def expert_tp(self) -> int:
        """``etp``, which is a number once it is here."""
        return self.etp or self.tp

    @property
    def copy_size(self) -> int:
        """The processes that share one copy of a stage's parameters."""
        return self.tp * self.cp * (self.dp // self.dp_replicate)

    @property
    def stages(self) -> int:
        """How many a pipeline has: 1 without one."""
        return len(seats(self.schedule, self.pp)) if self.pp > 1 else 1

    def __str__(self) -> str:
        """Its text, as ``parse_layouts`` reads it, without a stage that is the trainer's choice."""
        words = []
        if self.tp > 1:
            words += [f"tp{self.tp}"] + ["sp"] * self.sequence_parallel
        if self.cp > 1:
            words.append(f"cp{self.cp}:{self.cp_comm_type}")
        if self.pp > 1:
            words.append(f"pp{self.pp}:{self.schedule}")
        if self.ep > 1:
            words.append(f"ep{self.ep}")
        if self.expert_tp != self.tp:
            words.append(f"etp{self.etp}")
        if self.dp > 1:
            words.append(f"dp{self.dp}")
        if self.dp_replicate > 1:
            words.append(f"replicate{self.dp_replicate}")
        if self.zero != replace(self, zero=None).zero:
            words.append(f"zero{self.zero}")
        return " ".join(words) or "one process"

    def mesh(self, **options: Any) -> Mesh:
        """The mesh over the initialised process group; further options are ``Mesh.launch``'s."""
        return Mesh.launch(
            tp=self.tp,
            cp=self.cp,
            dp=self.dp,
            pp=self.pp,
            ep=self.ep,
            etp=self.etp,
            dp_replicate=self.dp_replicate,
            sequence_parallel=self.sequence_parallel,
            cp_comm_type=self.cp_comm_type,
            **options,
        )

    def capped(self, most: int = 2) -> Degrees:
        """The same axes, each degree ``most`` at most, for a check of the program on few processes.

        HSDP keeps two copies of two parts each where that is no more than 8 processes of a stage.
        """
        tp, cp, pp = min(self.tp, most), min(self.cp, most), min(self.pp, most)
        replicate = min(self.dp_replicate, most)
        parts = min(self.dp // self.dp_replicate, most)
        if replicate > 1 and tp * cp * replicate * parts > 8:
            parts = 1
        ep, etp = min(self.ep, most), min(self.expert_tp, most)
        if (tp * cp * parts) % (ep * etp):  # each alone does
            etp = 1
        dp = replicate * parts
        return replace(self, tp=tp, cp=cp, pp=pp, dp=dp, dp_replicate=replicate, ep=ep, etp=etp)


def parse_layouts(text: str) -> list[Degrees]:
    """``"tp2 sp, cp2:a2a"``: the layouts in the order in which they stand, each once.

    A stage that is not named is the trainer's choice, and so is a kind of cp.
    Raises Refusal for a word that is none, one given twice, and degrees that contradict each other.
    """
    return list(dict.fromkeys(_parse(part.strip()) for part in text.split(",")))


def _parse(text: str) -> Degrees:
    given: dict[str, Any] = {}
    for word in [] if text == "one process" else text.split():
        found = re.fullmatch(
            r"(tp|dp|replicate|zero|ep|etp)(\d+)|(cp|pp)(\d+)(?::(\w+))?|(sp)", word
        )
        if found is None:
            raise Refusal(f"--layouts: {word!r} in {text!r} is no degree; write {_FORM}.")
        name, number = found[1] or found[3], found[2] or found[4]
        new: dict[str, Any] = (
            {"sequence_parallel": True} if name is None else {_DEGREES[name]: int(number)}
        )
        if found[5] is not None:
            new["cp_comm_type" if name == "cp" else "schedule"] = found[5]
        twice = given.keys() & new.keys()
        if twice:
            raise Refusal(f"--layouts: {text!r} gives {twice.pop()} 2 times.")
        given |= new
    if not text:
        raise Refusal(f"--layouts: a layout has 0 words; write {_FORM}.")
    if given.get("sequence_parallel") and given.get("tp", 1) == 1:
        raise Refusal(f"--layouts: {text!r} has sp, which cuts positions over tp, and tp is 1.")
    try:
        return Degrees(**given)
    except ValueError as error:
        raise Refusal(f"--layouts: {text!r}: {error}.") from None


def fitting(
    processes: int, *, every_sharding: bool = False, experts: bool = False
) -> list[Degrees]:
    """Every mix of tp, sp, cp of each kind, pp and dp, in powers of two: of 2 processes to so many.

    ``every_sharding``: each with ZeRO-1, 2 and 3 and as hybrid of each number of copies, and those
    without ranks to share parameters (one process among them) also under FSDP over one rank;
    otherwise with the trainer's choice. And pipelines by each schedule, otherwise by 1F1B.
    ``experts``: each also with every ep, and an etp of 1 and of tp, that divide its ranks.
    """
    powers = [2**n for n in range(processes.bit_length())]
    found = [
        degrees
        for tp in powers
        for sp in ((False, True) if tp > 1 else (False,))
        for cp in powers
        for kind in (CP_COMM_TYPES if cp > 1 else CP_COMM_TYPES[:1])
        for pp in powers
        for schedule in (SCHEDULES if pp > 1 and every_sharding else ("1f1b",))
        for dp in powers
        if tp * cp * pp * dp <= processes
        for degrees in _sharded(
            Degrees(
                tp=tp,
                cp=cp,
                dp=dp,
                sequence_parallel=sp,
                cp_comm_type=kind,
                pp=pp,
                schedule=schedule,
            ),
            every_sharding,
        )
        if degrees != Degrees()
    ]
    if experts:
        found += [divided for degrees in found for divided in _divided(degrees, powers)]
    return sorted(found, key=lambda degrees: degrees.size)


def _divided(degrees: Degrees, powers: Sequence[int]) -> Iterator[Degrees]:
    for ep in powers:
        for etp in {1, degrees.tp}:
            if degrees.copy_size % (ep * etp) == 0 and (ep, etp) != (degrees.ep, degrees.etp):
                yield replace(degrees, ep=ep, etp=etp)


def _sharded(degrees: Degrees, every: bool) -> Iterator[Degrees]:
    if not every:
        yield degrees
        return
    if degrees.zero == 0:
        yield degrees
        yield replace(degrees, zero=1 if degrees.schedule in SPLIT else 3)
        return
    for stage in (1,) if degrees.schedule in SPLIT else (1, 2, 3):
        yield replace(degrees, zero=stage)
    copies = 2
    while copies <= degrees.dp:
        yield replace(degrees, dp_replicate=copies)
        copies *= 2
