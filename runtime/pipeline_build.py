"""The stages that a rank of a pipeline has, built; and what does not go with a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from .mesh import Mesh
from .page import Page
from .pipeline import Pipeline
from .pipeline_cut import Stages
from .pipeline_schedules import SPLIT, check, seats
from .recompute import Recompute
from .refusal import Refusal
from .stage_models import StageModels


class PipelineOptions(Protocol):
    """What a run says of its pipeline, and of what has to go with it."""

    @property
    def schedule(self) -> str: ...
    @property
    def stages_per_rank(self) -> int | None: ...
    @property
    def layers_per_stage(self) -> tuple[int, ...] | None: ...
    @property
    def accumulation(self) -> int: ...
    @property
    def compile(self) -> bool: ...
    @property
    def recompute(self) -> Recompute: ...
    @property
    def zero(self) -> int: ...
    @property
    def fsdp(self) -> bool | None: ...


def refuse_schedule(how: PipelineOptions, mesh: Mesh) -> None:
    """Raises Refusal where the schedule cannot be run, or not with the rest."""
    if mesh.pp.size == 1:
        if how.layers_per_stage is not None or how.stages_per_rank is not None:
            raise Refusal(
                "Layers per stage and stages per rank are of a pipeline, and pp is 1: give --pp."
            )
        return
    try:
        check(how.schedule, mesh.pp.size, how.accumulation, how.stages_per_rank)
    except ValueError as error:
        raise Refusal(f"{error}.") from None
    if how.schedule not in SPLIT:
        return
    apart = f"--schedule {how.schedule} computes gradients of weights apart from those of inputs"
    if how.compile:
        raise Refusal(
            f"{apart}, and a compiled layer gives both at once: leave --compile, or take 1f1b or "
            "interleaved."
        )
    if how.recompute.granularity != "none":
        raise Refusal(
            f"{apart}, and would compute a layer again for each of its weights: leave --recompute, "
            "or take 1f1b or interleaved."
        )
    if how.zero != 1 and (how.fsdp or (how.fsdp is None and mesh.dp_cp.size > 1)):
        raise Refusal(
            f"{apart}, so FSDP has to hold parameters and gradients whole until a step ends: give "
            f"--zero 1 instead of {how.zero}, or take 1f1b or interleaved."
        )


def build_pipeline(
    page: Page,
    config: Any,
    mesh: Mesh,
    how: PipelineOptions,
    *,
    seed: int,
    device: torch.device,
    wrap: Callable[[nn.Module], None],
) -> tuple[nn.Module, Pipeline]:
    """What this rank has of the model, as one module, and its pipeline.

    Raises Refusal where the page cannot be cut, or not so.
    """
    places = seats(how.schedule, mesh.pp.size, how.stages_per_rank)
    stages = Stages(places, how.layers_per_stage, active_share(config))
    models: dict[int, nn.Module] = {}
    for stage, seat in enumerate(places):
        if seat == mesh.pp.rank:
            own = mesh.at_stage(stage, len(places))
            models[stage] = page.build(
                own, config, seed=seed, device=str(device), wrap=wrap, stages=stages
            )
    model = next(iter(models.values())) if len(models) == 1 else StageModels(list(models.values()))
    return model, Pipeline(models, mesh, how.schedule, places, device)


def active_share(config: Any) -> float:
    """The part of the experts' weights that one token meets."""
    experts, taken = (
        getattr(config, name, None) for name in ("num_moe_experts", "moe_router_topk")
    )
    return taken / experts if experts and taken else 1.0
