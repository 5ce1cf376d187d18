"""What is left to do with gradients after the last backward.

One rule: the gradient of a parameter is summed over each axis over which it is replicated. The
global loss is the sum of all ranks' local losses, so each rank's gradient is a part of that sum.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .mesh import Axis, Mesh
from .parameters import ParameterRecord, canonical_parameters, local_tensor
from .sharded import as_sharded


@torch.no_grad()
def sum_replicated_gradients(model: nn.Module, mesh: Mesh) -> None:
    """Sums gradients, in place, over tp for what is replicated over tp, and over dp for what FSDP
    does not shard: one flat all-reduce for each axis and dtype.

    Call it once a step, after the last backward. A parameter without a gradient on this rank counts
    as zero, since another rank may have one; without one on any rank it stays without.
    """
    if mesh.size == 1:
        return
    parts: dict[tuple[str, torch.dtype], list[Tensor]] = defaultdict(list)
    absent: list[tuple[nn.Parameter, Tensor]] = []
    for _, record, parameter in canonical_parameters(model):
        axes = _replicated_axes(record, parameter, mesh)
        if not axes or not parameter.requires_grad:
            continue
        # Summed along with the gradient: on how many ranks there is one.
        count = local_tensor(parameter).new_full((1,), 0.0 if parameter.grad is None else 1.0)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
            absent.append((parameter, count))
        gradient = local_tensor(parameter.grad)
        for axis in axes:
            parts[axis.name, gradient.dtype] += [gradient, count]
    for axis in (mesh.tp, mesh.dp_cp):
        for (name, _), tensors in parts.items():
            if name == axis.name:
                flat = torch.cat([t.reshape(-1) for t in tensors])
                dist.all_reduce(flat, group=axis.group)
                pieces = torch.split_with_sizes(flat, [t.numel() for t in tensors])
                sums = [piece.view_as(t) for piece, t in zip(pieces, tensors, strict=True)]
                torch._foreach_copy_(tensors, sums)
    for parameter, count in absent:
        if not count.item():
            parameter.grad = None


@torch.no_grad()
def clip_gradients(model: nn.Module, mesh: Mesh, max_norm: float) -> Tensor:
    """Scales all gradients, in place, so that their joint norm is at most ``max_norm``.

    Returns the joint norm before, a float32 scalar equal on all ranks: each global gradient counted
    once, whatever it is cut or replicated over; ties once. ``float("inf")`` only measures. Call it
    after ``sum_replicated_gradients``.
    """
    gradients: list[Tensor] = []
    copies: list[int] = []
    for _, record, parameter in canonical_parameters(model):
        if parameter.grad is not None:
            gradients.append(local_tensor(parameter.grad))
            copies.append(_copies(record, parameter, mesh))
    device = gradients[0].device if gradients else torch.device("cpu")
    total = torch.zeros((), dtype=torch.float32, device=device)
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32) if gradients else ()
    for norm, count in zip(norms, copies, strict=True):
        total += norm.square() / count
    if mesh.size > 1:
        dist.all_reduce(total)
    total = total.sqrt()
    if gradients:
        torch._foreach_mul_(gradients, (max_norm / (total + 1e-6)).clamp(max=1.0))
    return total


def _replicated_axes(record: ParameterRecord, parameter: Tensor, mesh: Mesh) -> list[Axis]:
    axes = [mesh.tp] if record.dim is None else []
    if as_sharded(parameter) is None:
        axes.append(mesh.dp_cp)
    return [axis for axis in axes if axis.size > 1]


def _copies(record: ParameterRecord, parameter: Tensor, mesh: Mesh) -> int:
    """How many ranks hold each entry of a parameter."""
    copies = mesh.tp.size if record.dim is None else 1
    sharded = as_sharded(parameter)
    if sharded is None:
        return copies * mesh.dp_cp.size
    for mesh_dim, placement in enumerate(sharded.placements):
        if placement.is_replicate():
            copies *= sharded.device_mesh.size(mesh_dim)
    return copies
