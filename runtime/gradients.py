"""What is left to do with gradients after the last backward.

One rule: the gradient of a parameter is summed over each axis over which it is replicated. The
global loss is the sum of all ranks' local losses, so each rank's gradient is a part of that sum.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .mesh import Mesh
from .parameters import ParameterRecord, canonical_parameters, local_tensor, replicated_axes
from .sharded import as_sharded
from .sharded_groups import sharded_groups
from .stage_parts import stage_parts


@torch.no_grad()
def sum_replicated_gradients(model: nn.Module, mesh: Mesh) -> None:
    """Sums gradients, in place, over the axes over which each is replicated (tp, and dp x cp; of an
    expert's etp and edp) and which FSDP does not reduce: one flat all-reduce for each axis and
    dtype.

    Call it once a step, after the last backward. A parameter without a gradient on this rank counts
    as zero where another rank has one (told by numbers that travel along, one for each parameter);
    without one on any rank it stays without.
    """
    if mesh.size == 1:
        return
    axes = [a for a in (mesh.tp, mesh.dp_cp, mesh.etp, mesh.edp) if a.size > 1]
    groups = sharded_groups(model)
    zeros = set() if groups is None else groups.take_zeros()  # they stand for no gradient
    parts: dict[str, dict[torch.dtype, list[Tensor]]] = {axis.name: {} for axis in axes}
    trained: list[nn.Parameter] = []
    present: list[bool] = []
    for name, record, parameter in canonical_parameters(model):
        if not parameter.requires_grad:
            continue
        trained.append(parameter)
        by_fsdp = as_sharded(parameter) is not None
        present.append(parameter.grad is not None and name not in zeros)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradient = local_tensor(parameter.grad)
        for axis in replicated_axes(record, mesh):
            if axis.size > 1 and not (by_fsdp and axis in (mesh.dp_cp, mesh.edp)):
                parts[axis.name].setdefault(gradient.dtype, []).append(gradient)
    if not trained:
        return
    # On how many ranks each has a gradient.
    device = local_tensor(trained[0]).device
    everywhere = all(present)
    counts = torch.ones(len(present), device=device)  # a copy from the host would wait for it
    if not everywhere:
        counts.copy_(torch.tensor(present))
    for axis in axes:
        if axis in (mesh.tp, mesh.dp_cp):  # between them all ranks of the stage
            parts[axis.name].setdefault(torch.float32, []).append(counts)
        for tensors in parts[axis.name].values():
            flat = torch.cat([t.reshape(-1) for t in tensors])
            dist.all_reduce(flat, group=axis.group)
            pieces = torch.split_with_sizes(flat, [t.numel() for t in tensors])
            sums = [piece.view_as(t) for piece, t in zip(pieces, tensors, strict=True)]
            torch._foreach_copy_(tensors, sums)
    if not everywhere:  # else nothing waits for the device
        for parameter, count in zip(trained, counts.tolist(), strict=True):
            if not count:
                parameter.grad = None


@torch.no_grad()
def gradient_norm(model: nn.Module, mesh: Mesh) -> Tensor:
    """The joint norm of all gradients, a float32 scalar equal on all ranks.

    Each global gradient counts once, whatever it is cut or replicated over; ties count once. Call
    it after ``sum_replicated_gradients``; it waits for no device.
    """
    by_copies: dict[int, list[Tensor]] = {}
    for name, record, parameter in canonical_parameters(model):
        if parameter.grad is not None:
            copies = _copies(record, parameter, mesh) * len(_stages_with(model, name))
            by_copies.setdefault(copies, []).append(local_tensor(parameter.grad))
    device = next((g[0].device for g in by_copies.values()), torch.device("cpu"))
    total = torch.zeros((), dtype=torch.float32, device=device)
    for copies, gradients in by_copies.items():
        norms = torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float32))
        total += norms.square().sum() / copies
    if mesh.size > 1:
        dist.all_reduce(total)
    return total.sqrt()


def clip_scale(norm: Tensor, max_norm: float) -> Tensor:
    """What gradients of this joint norm have to be multiplied by: 1 where it is small enough."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def clip_gradients(model: nn.Module, mesh: Mesh, max_norm: float) -> Tensor:
    """Scales all gradients, in place, so that their joint norm is at most ``max_norm``.

    Returns the joint norm before (``gradient_norm``). ``float("inf")`` only measures.
    """
    norm = gradient_norm(model, mesh)
    gradients = [local_tensor(p.grad) for p in model.parameters() if p.grad is not None]
    if gradients and max_norm != float("inf"):
        torch._foreach_mul_(gradients, clip_scale(norm, max_norm))
    return norm


def _stages_with(model: nn.Module, name: str) -> tuple[int, ...]:
    """The ranks of pp that hold a parameter."""
    parts = stage_parts(model)
    return (0,) if parts is None else parts.holders[name]


def _copies(record: ParameterRecord, parameter: Tensor, mesh: Mesh) -> int:
    """How many ranks of a stage hold each entry of a parameter."""
    copies = 1
    sharded = as_sharded(parameter)
    for axis in replicated_axes(record, mesh):
        if sharded is None or axis not in (mesh.dp_cp, mesh.edp):
            copies *= axis.size
    if sharded is not None:
        for mesh_dim, placement in enumerate(sharded.placements):
            if placement.is_replicate():
                copies *= sharded.device_mesh.size(mesh_dim)
    return copies
