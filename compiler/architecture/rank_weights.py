"""The weights that the fullest rank of a layout holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch.distributed as dist
from torch import nn

from specc.runtime.layouts import Degrees
from specc.runtime.mesh import Axis, Mesh
from specc.runtime.parameters import canonical_parameters
from specc.runtime.parameters import cut as part
from specc.runtime.pipeline_cut import CutPlaces, Stages, keep_stage
from specc.runtime.pipeline_schedules import seats
from specc.runtime.workload import Workload


@dataclass(frozen=True)
class StageWeights:
    """Of a rank's part of one stage; `layers`: how many of those that the stages share out."""

    layers: int
    parameters: int


@dataclass(frozen=True)
class RankWeights:
    """Entries, padding included, and their bytes: a rank's own weights are float32 at any stage of
    ZeRO. `stages`: of each stage of a pipeline what a rank holds of it.
    """

    parameters: int
    bytes: int
    stages: tuple[StageWeights, ...] = ()


@dataclass(frozen=True)
class Cut:
    """How a page is cut into stages: where it says that it can be, and the part of an expert's
    weights that a token meets, by which layers are shared out."""

    places: CutPlaces
    active: float = 1.0


def rank_weights(
    build: Callable[[Mesh], nn.Module], degrees: Degrees, cut: Cut | None = None
) -> RankWeights:
    """Of the fullest rank: the first one of its stages, which is never less full than another.

    `build` makes the model on the meta device. A pipeline's layers are shared out by cost; a
    parameter of the first stage and the last is on both.
    Raises what a layer raises that tp, ep or etp does not divide, and ValueError for a pipeline
    where `cut` is None or the layers do not fill it.
    """
    if degrees.pp == 1:
        count, size = _held(build(_first_rank(degrees)), degrees)
        return RankWeights(count, size)
    if cut is None:
        raise ValueError("the page does not say where a pipeline may cut it")
    where = seats(degrees.schedule, degrees.pp)
    sums = [(0, 0)] * degrees.pp
    stages = []
    for stage, rank in enumerate(where):
        mesh = _first_rank(degrees).at_stage(stage, len(where))
        model = build(mesh)
        keep_stage(model, cut.places, Stages(where, active=cut.active), mesh)
        count, size = _held(model, degrees)
        sums[rank] = (sums[rank][0] + count, sums[rank][1] + size)
        stages.append(StageWeights(_layers(model, cut.places), count))
    return RankWeights(*max(sums), tuple(stages))


def _layers(model: nn.Module, places: CutPlaces) -> int:
    """Those of a stage's layers that the stages share out."""
    fixed = {*places.first, *places.last}
    lists = (path for path in places.layers if not any(path.startswith(name) for name in fixed))
    return sum(len(cast(nn.ModuleList, model.get_submodule(path))) for path in lists)


def _held(model: nn.Module, degrees: Degrees) -> tuple[int, int]:
    """Entries and bytes that the first rank holds of a model, or of a stage of it.

    It was built on the meta device, so the layers themselves say what tp, ep and etp leave them.
    FSDP, at every stage of ZeRO, then cuts dimension 0 of each parameter over cp and the ranks of
    dp that share a copy, rounded up; experts over the ranks that ep and etp leave, each inside
    where these do not divide the experts. A parameter that is one number, or is not trained, stays
    whole. What is gathered for a forward comes on top.
    """
    dense = Workload(degrees, length=1).shards
    expert = dense * degrees.tp // (degrees.ep * degrees.expert_tp) if degrees.zero else 1
    count = size = 0
    for _, record, parameter in canonical_parameters(model):
        shards = dense if record.expert_dim is None else expert
        if not parameter.requires_grad and parameter.dim() == 1:
            shards = 1
        rows = parameter.shape[0] if parameter.dim() else 1
        row = parameter.numel() // rows if rows else 0
        held = (part(rows, shards, 0).size if parameter.dim() else rows) * row
        if record.expert_dim is not None and rows % shards and parameter.shape[1] % shards == 0:
            held = parameter.numel() // shards
        count += held
        size += held * parameter.element_size()
    return count, size


def _first_rank(degrees: Degrees) -> Mesh:
    """The mesh that a constructor sees on rank 0. No process runs, and nothing can communicate."""

    def axis(name: str, size: int) -> Axis:
        group: Any = SimpleNamespace(group_name=f"no group of {name}")
        return Axis(name, size, 0, cast(dist.ProcessGroup, group) if size > 1 else None)

    stage = degrees.size // degrees.pp
    return Mesh(
        pp=axis("pp", degrees.pp),
        dp_replicate=axis("dp_replicate", degrees.dp_replicate),
        dp_shard=axis("dp_shard", degrees.dp // degrees.dp_replicate),
        cp=axis("cp", degrees.cp),
        tp=axis("tp", degrees.tp),
        dp=axis("dp", degrees.dp),
        dp_cp=axis("dp_cp", degrees.dp * degrees.cp),
        tp_cp=axis("tp_cp", degrees.tp * degrees.cp),
        dp_cp_tp=axis("dp_cp_tp", stage),
        ep=axis("ep", degrees.ep),
        etp=axis("etp", degrees.expert_tp),
        edp=axis("edp", stage // (degrees.ep * degrees.expert_tp)),
        sequence_parallel=degrees.sequence_parallel,
        cp_comm_type=degrees.cp_comm_type,
    )
