"""Parameters that the first stage of a pipeline and the last share: one table for embedding and
head, or an embedding that predicts further tokens too."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .mesh import Mesh
from .parameters import canonical_parameters, local_tensor
from .stage_models import StageModels
from .stage_parts import stage_parts


@torch.no_grad()
def sum_over_stages(model: nn.Module, mesh: Mesh) -> None:
    """Sums, in place, the gradients of what two stages share: each counts as one parameter.

    Call it after ``sum_replicated_gradients`` of every stage. Between two ranks it is one exchange
    in each direction; a rank that has both stages adds up, and its twin's gradient goes. Where
    neither has a gradient there is none afterwards.
    """
    if isinstance(model, StageModels):
        for parameter, twin in model.twins():
            if parameter.grad is None:
                parameter.grad = twin.grad
            elif twin.grad is not None:
                local_tensor(parameter.grad).add_(local_tensor(twin.grad))
            twin.grad = None
    shared, other = _shared(model, mesh)
    if not shared:
        return
    present = [parameter.grad is not None for parameter in shared]
    for parameter in shared:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [local_tensor(p.grad).float().flatten() for p in shared if p.grad is not None]
    flags = torch.tensor(present, dtype=torch.float32, device=gradients[0].device)
    own = torch.cat([*gradients, flags])
    theirs = _exchanged(own, other, mesh)
    pieces = torch.split(own + theirs, [*(g.numel() for g in gradients), len(present)])
    for parameter, piece in zip(shared, pieces[:-1], strict=True):
        assert parameter.grad is not None
        local = local_tensor(parameter.grad)
        local.copy_(piece.view_as(local))
    if not all(present):  # else nothing waits for the device
        for parameter, count in zip(shared, pieces[-1].tolist(), strict=True):
            if not count:
                parameter.grad = None


@torch.no_grad()
def refresh_twins(model: nn.Module) -> None:
    """Gives each twin on this rank its parameter's values: only the parameter is trained, loaded
    and saved."""
    if isinstance(model, StageModels):
        for parameter, twin in model.twins():
            local_tensor(twin).copy_(local_tensor(parameter))


def _shared(model: nn.Module, mesh: Mesh) -> tuple[list[nn.Parameter], int]:
    """What another rank of pp holds too, in the order of the whole table, and that rank."""
    parts = stage_parts(model)
    found: list[nn.Parameter] = []
    other = -1
    if parts is not None:
        for name, _, parameter in canonical_parameters(model):
            holders = parts.holders[name]
            if len(holders) > 1 and parameter.requires_grad:
                found.append(parameter)
                (other,) = (rank for rank in holders if rank != mesh.pp.rank)
    return found, other


def _exchanged(own: Tensor, other: int, mesh: Mesh) -> Tensor:
    assert mesh.pp.group is not None
    theirs = torch.empty_like(own)
    peer = dist.get_global_rank(mesh.pp.group, other)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, own, peer, mesh.pp.group),
            dist.P2POp(dist.irecv, theirs, peer, mesh.pp.group),
        ]
    )
    for work in works:
        work.wait()
    return theirs
