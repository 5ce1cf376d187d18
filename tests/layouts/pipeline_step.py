"""A page's step in a pipeline of test ranks: each rank's part, for a test to put together."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from specc.runtime import Mesh
from specc.runtime.gradients import gradient_norm
from specc.runtime.one_step import Case, Shape, make_batch, micro_batches, moved
from specc.runtime.page import load_page
from specc.runtime.parameters import (
    canonical_parameters,
    local_part,
    local_tensor,
    parameter_table,
    whole_tensor,
)
from specc.runtime.pipeline_shared import refresh_twins
from specc.runtime.recompute import Recompute
from specc.runtime.trainer import Trainer, Training

SHAPE, VOCABULARY, STEP, SEED = Shape(), 131, 5, 3

load = functools.cache(load_page)


@dataclass(frozen=True)
class Layout:
    """How a step is run: the mesh's degrees, the pipeline, and the rest of ``Training``."""

    pp: int = 1
    schedule: str = "1f1b"
    accumulation: int = 4
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    sequence_parallel: bool = False
    dp_replicate: int = 1
    stages_per_rank: int | None = None
    layers_per_stage: tuple[int, ...] | None = None
    zero: int = 1
    fsdp: bool | None = None
    packed: bool = False
    recompute: str = "none"
    loss_chunks: int = 1
    dtype: torch.dtype = torch.float32


def mesh_of(layout: Layout) -> Mesh:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return Mesh.single(layout.dtype)
    return Mesh.launch(
        pp=layout.pp,
        tp=layout.tp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
        sequence_parallel=layout.sequence_parallel,
        dp_replicate=layout.dp_replicate,
        dtype=layout.dtype,
        loss_chunks=layout.loss_chunks,
    )


def training(layout: Layout) -> Training:
    return Training(
        accumulation=layout.accumulation,
        zero=layout.zero,
        fsdp=layout.fsdp,
        recompute=Recompute(layout.recompute),
        schedule=layout.schedule,
        stages_per_rank=layout.stages_per_rank,
        layers_per_stage=layout.layers_per_stage,
    )


def trainer_of(file: str, layout: Layout, mesh: Mesh) -> Trainer:
    page = load(file)
    return Trainer(page, page.config(), mesh, training(layout), seed=SEED)


def run(file: str, layout: Layout, values: dict[str, Tensor] | None = None) -> dict[str, Any]:
    """ "initial", "gradient" and "stepped" NAME of what this rank has, whole; "loss" of all ranks'
    micro-batches, "norm", and "held-out" as ``evaluate`` says it."""
    mesh = mesh_of(layout)
    trainer = trainer_of(file, layout, mesh)
    found: dict[str, Any] = dict(_whole(trainer, "initial"))
    if values is None:
        values = moved({name.split()[1]: value for name, value in found.items()})
    for name, record, parameter in canonical_parameters(trainer.model):
        part, local = local_part(record, parameter, mesh), local_tensor(parameter)
        part.valid(local).copy_(part.of(values[name]))
    batch = make_batch(VOCABULARY, SHAPE, packed=layout.packed)
    case = Case(accumulation=layout.accumulation, packed=layout.packed)
    own = list(micro_batches(batch, mesh, case))
    found["held-out"] = trainer.evaluate(own)
    found["loss"] = trainer.summed(trainer.gradients(STEP, own))
    found |= _whole(trainer, "gradient")
    found["norm"] = gradient_norm(trainer.model, mesh)
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.step(STEP, 1e-2, own)
    found |= _whole(trainer, "stepped")
    found["names"] = sorted(parameter_table(trainer.model))
    refresh_twins(trainer.model)
    found["again"] = trainer.evaluate(own)
    found["values"] = values
    return found


def run_all(file: str, layouts: list[Layout], values: dict[str, Tensor]) -> list[dict[str, Any]]:
    return [run(file, layout, values) for layout in layouts]


def _whole(trainer: Trainer, kind: str) -> dict[str, Tensor]:
    found = {}
    for name, record, parameter in canonical_parameters(trainer.model):
        tensor = parameter.grad if kind == "gradient" else parameter
        if tensor is not None:
            found[f"{kind} {name}"] = whole_tensor(tensor, record, trainer.mesh).clone()
    return found
