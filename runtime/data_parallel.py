"""Data parallel by FSDP2: parameters, gradients and optimizer state sharded over dp.

Sums everywhere: each rank's loss is already its share of the global one (divided by the global
count of tokens), so a gradient is the plain sum over ranks.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from .mesh import Mesh

_KEEPS = "_keeps_gathered"


def shard(
    model: nn.Module, mesh: Mesh, *, dtype: torch.dtype, reshard_after_forward: bool = True
) -> None:
    """Shards ``model`` in place: each element of the outermost ``nn.ModuleList``s, then the rest.

    Meant as ``materialize(..., wrap=...)``: it works on a model without memory. Weights are
    gathered in ``dtype``; masters, reductions and optimizer state are float32; inputs are not cast,
    since the layers state the precision. The rest (embedding, final norm, output layer) stays
    gathered from its forward to its backward, so that the output layer's weight may be used beside
    its forward. A parameter that is one number (no dimension) has nothing to cut: every rank keeps
    it in float32, and ``sum_replicated_gradients`` sums its gradient. The gradients of a weight
    that one backward reaches twice (a tied embedding) add up in ``dtype`` before they are reduced.

    ``reshard_after_forward``: gather a unit again for its backward (ZeRO-3) or keep it (ZeRO-2).
    Raises ValueError where the mesh was not launched over a process group.
    """
    if mesh.fsdp_mesh is None:
        raise ValueError(
            "shard needs a mesh over a process group: Mesh.launch(), not Mesh.single()"
        )
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    scalars = {p for p in model.parameters() if p.dim() == 0}
    groups = [(unit, reshard_after_forward) for unit in units(model)]
    for group, reshard in [*groups, (model, False)]:
        fully_shard(
            group,
            mesh=mesh.fsdp_mesh,
            mp_policy=policy,
            reshard_after_forward=reshard,
            ignored_params=scalars,
        )
    for module in _sharded(model):
        # Both are needed: a factor other than 1 has no sum on gloo, and none is an average.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
        cast(nn.Module, module).__dict__[_KEEPS] = not reshard_after_forward
    model.__dict__[_KEEPS] = True


def accumulate(model: nn.Module, *, last: bool) -> None:
    """Call before each micro-batch: gradients are communicated in the ``last`` one's backward only.

    Until then they add up on each rank, whole and in float32, and what stays gathered from forward
    to backward stays so from one micro-batch to the next. Does nothing to an unsharded model.
    """
    for module in _sharded(model):
        module.set_requires_gradient_sync(last, recurse=False)
        module.set_is_last_backward(last)
        if cast(nn.Module, module).__dict__[_KEEPS]:
            module.set_reshard_after_backward(last, recurse=False)


def _sharded(model: nn.Module) -> list[FSDPModule]:
    return [cast(FSDPModule, m) for m in model.modules() if isinstance(m, FSDPModule)]


def units(model: nn.Module) -> list[nn.Module]:
    """The elements of the outermost module lists, each once.

    One that shares a parameter with anything outside it is left to the root: two groups cannot hold
    one parameter.
    """
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    return [
        unit
        for unit in dict.fromkeys(_elements(model))
        if any(True for _ in unit.parameters()) and not _shares(unit, users)
    ]


def _elements(module: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        inside = isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList)
        found += [child] if inside else _elements(child)
    return found


def _shares(unit: nn.Module, users: dict[int, int]) -> bool:
    inside: dict[int, int] = {}
    for module in unit.modules():
        for parameter in module.parameters(recurse=False):
            inside[id(parameter)] = inside.get(id(parameter), 0) + 1
    return any(count != users[key] for key, count in inside.items())
