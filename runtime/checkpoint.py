"""Checkpoints: whole tensors by name, so that one loads at any layout, bit for bit.

A checkpoint is a folder ``step-00000200`` with

- ``checkpoint.json``: the ``Facts`` below;
- ``model.safetensors``: parameters by qualified name (of tied ones the first) and the buffers that
  a state dict holds, as they are trained: float32 also where layers compute in bf16;
- ``optimizer.safetensors``: ``optim.exp_avg.NAME`` and ``optim.exp_avg_sq.NAME``;
- ``tokenizer.json``, where the run has one.

It is written under another name and renamed, so a folder with this name is complete. Nothing in it
is pickled: loading runs no code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .mesh import Mesh
from .optimizer import STATES, set_step_count
from .parameters import (
    ParameterRecord,
    canonical_parameters,
    local_part,
    local_tensor,
    whole_tensor,
)
from .refusal import Refusal
from .safetensors import Entry, Reader, write

FORMAT = "specc checkpoint 1"
_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Facts:
    """What a checkpoint says of its run. The fields of ``SAME`` may not change on resume."""

    page: str  # the hash of the page's body
    config: dict[str, Any]
    seed: int
    seq_length: int
    tokenizer: str
    text: str  # the hash of all tokens, and how many they are
    step: int  # how many were taken
    sequences: int  # how many of the stream were read
    schedule: dict[str, float]
    written_at: dict[
        str, Any
    ]  # layout, precision and torch version: for the reader, never compared


SAME = ("page", "config", "seed", "seq_length", "tokenizer", "text")


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mesh: Mesh,
    facts: Facts,
    *,
    tokenizer: Path | None = None,
    keep: int = 2,
) -> Path:
    """Write a checkpoint into ``folder``; then remove all but the newest ``keep``.

    All ranks call it; the first one writes, a tensor at a time.
    """
    target = folder / f"step-{facts.step:08d}"
    partial = folder / f"{target.name}.partial"
    if mesh.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    _write(partial / "model.safetensors", _model_tensors(model), mesh)
    _write(partial / "optimizer.safetensors", _optimizer_tensors(model, optimizer), mesh)
    if mesh.rank == 0:
        if tokenizer is not None:
            shutil.copyfile(tokenizer, partial / "tokenizer.json")
        text = json.dumps({"format": FORMAT, **asdict(facts)}, indent=1)
        (partial / "checkpoint.json").write_text(text + "\n")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        for old in _steps(folder)[:-keep]:
            shutil.rmtree(old)
    if mesh.size > 1:
        dist.barrier()  # whoever reads it next finds it whole
    return target


def find(path: Path) -> Path:
    """The checkpoint at ``path``, or the newest in it. Raises Refusal where there is none."""
    if (path / "checkpoint.json").is_file():
        return path
    steps = _steps(path)
    if not steps:
        raise Refusal(f"There is no checkpoint in {path}.")
    return steps[-1]


def newest_step(folder: Path) -> int | None:
    """The step of the newest checkpoint in a run's folder, None where there is none."""
    steps = _steps(folder)
    return _number(steps[-1]) if steps else None


def read_facts(checkpoint: Path) -> Facts:
    """Raises Refusal where the folder is not one of ours, or not whole."""
    try:
        values = json.loads((checkpoint / "checkpoint.json").read_text())
        found = values.pop("format")
        if found != FORMAT:
            raise Refusal(f"{checkpoint} has format {found!r}; this version reads {FORMAT!r}.")
        return Facts(**{field.name: values[field.name] for field in fields(Facts)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{checkpoint} is no whole checkpoint of specc: {error}.") from None


def refuse_another_run(saved: Facts, now: Facts, checkpoint: Path) -> None:
    """Raises Refusal where going on from ``saved`` would not be the run that stopped."""
    for name in SAME:
        then, here = getattr(saved, name), getattr(now, name)
        if name == "config":
            here = json.loads(json.dumps(here))  # as it reads after a save
            changed = [key for key in {**then, **here} if then.get(key) != here.get(key)]
            if changed:
                key = changed[0]
                raise Refusal(
                    f"{checkpoint} was trained with Config.{key} {then.get(key)}, and this run has "
                    f"{here.get(key)}."
                )
        elif then != here:
            what = {"page": "a page with body", "text": "text", "tokenizer": "tokenizer"}
            raise Refusal(
                f"{checkpoint} was trained with {what.get(name, '--' + name.replace('_', '-'))} "
                f"{then}, and this run has {here}."
            )


def load_model(checkpoint: Path, model: nn.Module, mesh: Mesh) -> None:
    """Fill parameters and buffers, whatever the layout. Raises Refusal where they do not fit."""
    _load(checkpoint / "model.safetensors", dict(_model_tensors(model)), mesh)


def load_optimizer(
    checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh, step: int
) -> None:
    """Fill the optimizer's states after ``step`` steps. Raises Refusal where they do not fit."""
    targets = dict(_optimizer_tensors(model, optimizer))
    _load(checkpoint / "optimizer.safetensors", targets, mesh)
    set_step_count(optimizer, step)


Named = tuple[str, tuple[Tensor, ParameterRecord]]


def _model_tensors(model: nn.Module) -> Iterator[Named]:
    for name, record, parameter in canonical_parameters(model):
        yield name, (parameter, record)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, nn.Parameter):  # a buffer: the same on every rank
            yield name, (tensor, ParameterRecord(tuple(tensor.shape)))


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Named]:
    for name, record, parameter in canonical_parameters(model):
        if parameter in optimizer.state:  # not where it is frozen
            for key in STATES:
                yield f"optim.{key}.{name}", (optimizer.state[parameter][key], record)


def _write(path: Path, tensors: Iterator[Named], mesh: Mesh) -> None:
    named = dict(tensors)
    whole = ((name, whole_tensor(tensor, record, mesh)) for name, (tensor, record) in named.items())
    if mesh.rank == 0:
        entries = {
            name: Entry(tensor.dtype, record.shape) for name, (tensor, record) in named.items()
        }
        write(path, entries, whole)
    else:
        for _ in whole:  # the gathers are collective
            pass


@torch.no_grad()
def _load(path: Path, targets: Mapping[str, tuple[Tensor, ParameterRecord]], mesh: Mesh) -> None:
    if not path.is_file():
        raise Refusal(f"{path.parent} is no whole checkpoint: it has no {path.name}.")
    saved = Reader(path)
    missing = [name for name in targets if name not in saved.entries]
    unknown = [name for name in saved.entries if name not in targets]
    if missing or unknown:
        raise Refusal(
            f"{path} has {len(saved)} tensors where this model has {len(targets)}: "
            f"{len(missing)} are missing ({', '.join(missing[:3])}) and {len(unknown)} are not "
            f"known ({', '.join(unknown[:3])})."
        )
    for name, (tensor, record) in targets.items():
        if saved.entries[name] != Entry(tensor.dtype, record.shape):
            dtype, shape = saved.entries[name]
            raise Refusal(
                f"{name} is {list(shape)} {dtype} in {path}, and {list(record.shape)} "
                f"{tensor.dtype} in this model."
            )
    for name, (tensor, record) in targets.items():
        part, local = local_part(record, tensor, mesh), local_tensor(tensor)
        local.zero_()  # padding too
        part.valid(local).copy_(part.of(saved[name]))


def _steps(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [entry for entry in folder.iterdir() if _NAME.fullmatch(entry.name)]
    return sorted(found, key=_number)


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))
