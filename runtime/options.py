"""The options of a training run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import arguments
from .data import Layout
from .mesh import CAPACITY_SCOPES, CP_COMM_TYPES, TOKEN_DISPATCHERS
from .optimizer import Schedule
from .page import Number
from .pipeline_schedules import SCHEDULES
from .recompute import GRANULARITIES, Recompute
from .refusal import Refusal

_YEAR = 365 * 24 * 3600


@dataclass(frozen=True)
class Options:
    """What was asked for; a field that is None is chosen when the run knows more."""

    page: Path
    data: tuple[tuple[float, Path], ...]  # weights and where the data is
    text_field: str = "text"
    tokenizer: Path | None = None
    valid_fraction: float = 0.05
    packed_documents: bool = False
    eod: int | None = None
    eod_mask_loss: bool = False
    changes: dict[str, Number] = field(default_factory=dict)
    seq_length: int | None = None
    steps: int = 200
    micro_batch: int = 8
    global_batch: int | None = None
    lr: float = 1e-3
    min_lr: float | None = None
    warmup: int | None = None
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    nproc: int = 1
    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    cp_comm_type: str = "all_gather"
    dp: int | None = None
    dp_replicate: int = 1
    pp: int = 1
    schedule: str = "1f1b"
    stages_per_rank: int | None = None
    layers_per_stage: tuple[int, ...] | None = None
    ep: int = 1
    etp: int | None = None
    capacity_scope: str = "micro_batch"
    moe_token_dispatcher_type: str = "alltoall"
    zero: int = 3
    no_verify: bool = False
    timeout: int = 600
    device: str | None = None
    dtype: str | None = None
    compile: bool = False
    recompute: str = "none"
    recompute_every: int = 1
    recompute_modules: tuple[str, ...] = ()
    loss_chunks: int = 1
    deterministic: bool = False
    seed: int = 0
    log_every: int = 10
    eval_every: int = 100
    eval_batches: int = 8
    out: Path | None = None
    save_every: int = 0
    async_save: bool = False
    keep: int = 2
    resume: Path | None = None
    init: Path | None = None
    tensorboard: Path | None = None

    def layout(self, dp: int, dp_rank: int) -> Layout:
        """How each step's sequences are dealt out. Raises Refusal where they do not divide."""
        together = self.micro_batch * dp
        total = together if self.global_batch is None else self.global_batch
        if total < 1 or total % together:
            raise Refusal(
                f"--global-batch {total} is no multiple of {together} sequences "
                f"(--micro-batch {self.micro_batch} on {dp} data-parallel ranks)."
            )
        return Layout(self.micro_batch, total // together, dp, dp_rank)

    def rates(self) -> Schedule:
        """The learning rate of each step."""
        return Schedule(
            self.lr,
            self.lr / 10 if self.min_lr is None else self.min_lr,
            min(100, self.steps // 10) if self.warmup is None else self.warmup,
            self.steps,
        )

    def recomputed(self) -> Recompute:
        """What is computed again in the backward."""
        return Recompute(self.recompute, self.recompute_every, self.recompute_modules)


def parser(prog: str = "specc train") -> argparse.ArgumentParser:
    """The command line."""
    return arguments.parser(prog, Options)


def parse(given: Sequence[str]) -> Options:
    """Options from a command line. argparse itself ends the program for ``--help`` and mistakes."""
    values = vars(parser().parse_args(given))
    changes = dict(change(text) for text in values.pop("set", ()))
    values["data"] = _blend(values["data"])
    if "recompute_modules" in values:
        names = values["recompute_modules"].split(",")
        values["recompute_modules"] = tuple(name.strip() for name in names)
    if "layers_per_stage" in values:
        values["layers_per_stage"] = _numbers("layers_per_stage", values["layers_per_stage"])
    if "resume" in values and values["resume"] is None:
        if "out" not in values:
            raise Refusal("--resume alone goes on from the run in --out, and 0 folders are given.")
        values["resume"] = values["out"]
    options = Options(changes=changes, **values)
    _check(options)
    return options


def _check(options: Options) -> None:
    least = {
        "steps": 1, "micro_batch": 1, "nproc": 1, "tp": 1, "cp": 1, "dp": 1, "dp_replicate": 1,
        "pp": 1, "stages_per_rank": 1, "ep": 1, "etp": 1,
        "seq_length": 1, "log_every": 1, "keep": 1, "eval_batches": 1, "warmup": 0, "timeout": 1,
        "eval_every": 0, "save_every": 0, "lr": 0, "min_lr": 0, "weight_decay": 0, "clip": 0,
        "valid_fraction": 0, "recompute_every": 1, "loss_chunks": 1, "eod": 0,
    }  # fmt: skip
    for name, bound in least.items():
        value = getattr(options, name)
        if value is None:
            continue
        if value < bound:
            raise Refusal(f"{_flag(name)} {value} is below {bound}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal(f"{_flag(name)} {value} is no finite number.")
    for name in ("valid_fraction", "beta1", "beta2"):
        value = getattr(options, name)
        if not 0 <= value < 1:
            raise Refusal(f"{_flag(name)} {value} is not in [0, 1).")
    if options.min_lr is not None and options.min_lr > options.lr:
        raise Refusal(f"--min-lr {options.min_lr} is above --lr {options.lr}.")
    if options.timeout > _YEAR:
        raise Refusal(f"--timeout {options.timeout} is above {_YEAR} seconds, a year.")
    known: dict[str, tuple[Any, ...]] = {
        "zero": (1, 2, 3), "cp_comm_type": CP_COMM_TYPES, "recompute": GRANULARITIES,
        "schedule": SCHEDULES, "capacity_scope": CAPACITY_SCOPES,
        "moe_token_dispatcher_type": TOKEN_DISPATCHERS,
    }  # fmt: skip
    for name, those in known.items():
        value = getattr(options, name)
        if value not in those:
            listed = ", ".join(map(str, those))
            raise Refusal(f"{_flag(name)} {value} is not one of the {len(those)} known: {listed}.")
    pipeline = ("schedule", "stages_per_rank", "layers_per_stage")
    given = [name for name in pipeline if getattr(options, name) != getattr(Options, name)]
    if options.pp == 1 and given:
        raise Refusal(f"{_flag(given[0])} is of a pipeline's stages, and --pp is 1.")
    for name in ("save_every", "async_save"):
        value = getattr(options, name)
        if value and options.out is None:
            told = f"{_flag(name)} {value}" if name == "save_every" else _flag(name)
            raise Refusal(f"{told} has 0 folders to save to: give --out.")
    if options.recompute_every > 1 and options.recompute == "none":
        raise Refusal(
            f"--recompute-every {options.recompute_every} counts layers that are recomputed, and "
            "--recompute is none: give --recompute full or selective."
        )
    if options.recompute_modules and options.recompute != "selective":
        raise Refusal(
            f"--recompute-modules {','.join(options.recompute_modules)} names parts of a layer, "
            f"and --recompute is {options.recompute}: give --recompute selective."
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise Refusal(f"{_flag(name)} {text}: it takes numbers, as in 5,5,4,4.") from None


def _blend(given: Sequence[str]) -> tuple[tuple[float, Path], ...]:
    """Weights and paths from the texts of --data."""
    parts = [_weighted(text) for text in given]
    bare = [path for weight, path in parts if weight is None]
    if bare and len(parts) > 1:
        raise Refusal(
            f"--data is given {len(parts)} times, and {len(bare)} of them say no weight, as "
            f"{bare[0]}: a blend takes WEIGHT:PATH for each."
        )
    return tuple((1.0 if weight is None else weight, path) for weight, path in parts)


def _weighted(text: str) -> tuple[float | None, Path]:
    number, colon, path = text.partition(":")
    try:
        weight = float(number) if colon else None
    except ValueError:
        weight = None  # a colon in a path
    if weight is None:
        return None, Path(text)
    if not 0 < weight < math.inf or not path:
        raise Refusal(f"--data {text}: a weight above 0 and a path are needed, as in 0.7:PATH.")
    return weight, Path(path)


def change(text: str) -> tuple[str, Number]:
    """Field and number of a --set. Raises Refusal where it is no such."""
    name, equals, value = text.partition("=")
    for kind in (int, float):
        try:
            return name.strip(), kind(value)
        except ValueError:
            continue
    what = f"{value!r} is no number" if equals else "there is no '='"
    raise Refusal(f"--set {text}: {what}; it takes field=number.")
