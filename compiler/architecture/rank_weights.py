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
from specc.runtime.parameters import canonical_parameters, cut
from specc.runtime.workload import Workload


@dataclass(frozen=True)
class RankWeights:
    """Entries, padding included, and their bytes: a rank's own weights are float32 at any stage."""

    parameters: int
    bytes: int


def rank_weights(build: Callable[[Mesh], nn.Module], degrees: Degrees) -> RankWeights:
    """Of rank 0, which is never less full than another.

    `build` makes the model on the meta device, so the layers themselves say what tp, ep and etp
    leave them. FSDP, at every stage, then cuts dimension 0 of each parameter over cp and the ranks
    of dp that share a copy, rounded up; experts over the ranks that ep and etp leave, each inside
    where these do not divide the experts. A parameter that is one number, or is not trained, stays
    whole. What is gathered for a forward comes on top.
    Raises what a layer raises that tp, ep or etp does not divide, and NotImplementedError for a
    pipeline.
    """
    if degrees.pp > 1:
        raise NotImplementedError("what the stages of a pipeline hold is not counted")
    model = build(_first_rank(degrees))
    dense = Workload(degrees, length=1).shards
    expert = dense * degrees.tp // (degrees.ep * degrees.expert_tp) if degrees.zero else 1
    count = size = 0
    for _, record, parameter in canonical_parameters(model):
        shards = dense if record.expert_dim is None else expert
        if not parameter.requires_grad and parameter.dim() == 1:
            shards = 1
        rows = parameter.shape[0] if parameter.dim() else 1
        row = parameter.numel() // rows if rows else 0
        held = (cut(rows, shards, 0).size if parameter.dim() else rows) * row
        if record.expert_dim is not None and rows % shards and parameter.shape[1] % shards == 0:
            held = parameter.numel() // shards
        count += held
        size += held * parameter.element_size()
    return RankWeights(count, size)


def _first_rank(degrees: Degrees) -> Mesh:
    """The mesh that a constructor sees on rank 0. No process runs, and nothing can communicate."""

    def axis(name: str, size: int) -> Axis:
        group: Any = SimpleNamespace(group_name=f"no group of {name}")
        return Axis(name, size, 0, cast(dist.ProcessGroup, group) if size > 1 else None)

    return Mesh(
        dp_replicate=axis("dp_replicate", degrees.dp_replicate),
        dp_shard=axis("dp_shard", degrees.dp // degrees.dp_replicate),
        cp=axis("cp", degrees.cp),
        tp=axis("tp", degrees.tp),
        dp=axis("dp", degrees.dp),
        dp_cp=axis("dp_cp", degrees.dp * degrees.cp),
        tp_cp=axis("tp_cp", degrees.tp * degrees.cp),
        dp_cp_tp=axis("dp_cp_tp", degrees.size),
        ep=axis("ep", degrees.ep),
        etp=axis("etp", degrees.expert_tp),
        edp=axis("edp", degrees.size // (degrees.ep * degrees.expert_tp)),
        sequence_parallel=degrees.sequence_parallel,
        cp_comm_type=degrees.cp_comm_type,
    )
