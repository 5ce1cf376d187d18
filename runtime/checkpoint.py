"""Checkpoints: tensors by name in shards, so that one loads at any layout, bit for bit.

A checkpoint is a folder ``step-00000200`` with

- ``checkpoint.json``: the ``Facts`` below;
- ``model.safetensors``: parameters by qualified name (of tied ones the first) and the buffers that
  a state dict holds, as they are trained: float32 also where layers compute in bf16. Of several
  processes each writes the shards that it holds, ``model-00003-of-00008.safetensors``;
- ``optimizer.safetensors``, or one for each process: ``optim.exp_avg.NAME`` and
  ``optim.exp_avg_sq.NAME``;
- ``index.json``: the global offsets of all shards, and the files;
- ``tokenizer.json``, where the run has one;
- ``complete.json``: written last, looked at first.

Nothing in it is pickled: loading runs no code. No generator's state is in it, since every draw of a
run is seeded by its step. A process may stop at any point of a save: see ``checkpoint_folder``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .checkpoint_folder import (
    FACTS,
    INDEX,
    MARKER,
    complete_steps,
    number,
    read_text,
    refuse_foreign,
)
from .checkpoint_index import FORMAT
from .checkpoint_plan import Named, model_tensors, optimizer_tensors
from .checkpoint_read import Stored
from .checkpoint_saver import Saver
from .checkpoint_stages import Held, held_by_all
from .checkpoint_team import Team
from .mesh import Mesh
from .optimizer import set_step_count
from .parameters import local_part, local_tensor
from .refusal import Refusal

__all__ = [
    "FORMAT",
    "Facts",
    "Saver",
    "Stored",
    "find",
    "load_model",
    "load_optimizer",
    "newest_step",
    "read_facts",
    "refuse_another_run",
]


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
    # layout, precision and torch version: for the reader, never compared
    written_at: dict[str, Any]

    def json(self) -> str:
        """As ``checkpoint.json`` has it."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"


SAME = ("page", "config", "seed", "seq_length", "tokenizer", "text")


def find(path: Path) -> Path:
    """The checkpoint at ``path``, or the newest whole one in it. Raises Refusal where none is."""
    if any((path / name).is_file() for name in (MARKER, FACTS, INDEX, ".metadata")):
        return path
    whole = complete_steps(path)
    if not whole:
        refuse_foreign(path)
        raise Refusal(f"There is no checkpoint in {path}.")
    return whole[-1]


def newest_step(folder: Path) -> int | None:
    """The step of the newest whole checkpoint in a run's folder, None where there is none.

    Raises Refusal where checkpoints of another format or program are in it: a run would find its
    steps' names taken.
    """
    refuse_foreign(folder)
    whole = complete_steps(folder)
    return number(whole[-1]) if whole else None


def read_facts(checkpoint: Path) -> Facts:
    """Raises Refusal where the folder is not one of ours, or not whole."""
    text = read_text(checkpoint, FACTS)
    try:
        values = json.loads(text)
        return Facts(**{field.name: values[field.name] for field in fields(Facts)})
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{checkpoint / FACTS} has no facts of a run: {error!r}.") from None


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
    """Fill parameters and buffers, whatever the layout.

    All ranks call it. Raises Refusal, on all of them, where the checkpoint does not fit or is
    damaged.
    """
    _load(checkpoint, "model", model_tensors(model), mesh)


def load_optimizer(
    checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh, step: int
) -> None:
    """Fill the optimizer's states after ``step`` steps. Raises as ``load_model`` does."""
    _load(checkpoint, "optimizer", optimizer_tensors(model, optimizer), mesh)
    set_step_count(optimizer, step)


@torch.no_grad()
def _load(checkpoint: Path, section: str, targets: Named, mesh: Mesh) -> None:
    team = Team.of(mesh)
    parts = {name: local_part(record, t, mesh) for name, (t, record) in targets.items()}
    everywhere = held_by_all(targets, mesh)
    stored: list[Stored] = []

    def check() -> Sequence[int]:
        found = Stored(checkpoint, section)
        _refuse_misfit(found, everywhere)
        for name, part in parts.items():
            found.check(name, part)
        stored.append(found)
        return [found.identity]

    identities = [identity for (identity,) in team.run(check, 1)]
    for rank, identity in enumerate(identities):
        if identity != identities[0]:
            raise Refusal(
                f"Rank {rank} found another checkpoint under {checkpoint} than rank 0: the folder "
                "is not the same on all machines."
            )

    def read() -> Sequence[int]:
        for name, (tensor, _) in targets.items():
            part, local = parts[name], local_tensor(tensor)
            local.zero_()  # padding too
            part.valid(local).copy_(stored[0].read(name, part))
        return ()

    team.run(read, 0)


def _refuse_misfit(stored: Stored, targets: Mapping[str, Held]) -> None:
    """Raises Refusal where names, shapes or dtypes are not those of the model."""
    where = f"The {stored.section} of {stored.checkpoint}"
    missing = [name for name in targets if name not in stored]
    unknown = [name for name in stored if name not in targets]
    if missing or unknown:
        raise Refusal(
            f"{where} has {len(stored)} tensors where this model has {len(targets)}: "
            f"{len(missing)} are missing ({', '.join(missing[:3])}) and {len(unknown)} are not "
            f"known ({', '.join(unknown[:3])})."
        )
    for name, held in targets.items():
        saved = stored.tensors[name]
        if (saved.dtype, saved.shape) != (held.dtype, held.shape):
            raise Refusal(
                f"{where} has {name} as {list(saved.shape)} {saved.dtype}, and this model as "
                f"{list(held.shape)} {held.dtype}."
            )
