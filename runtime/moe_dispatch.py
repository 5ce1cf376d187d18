"""Tokens to the rows of their experts, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .mesh import Mesh
from .moe_losses import count_experts


@dataclass(frozen=True, eq=False)
class Dispatched:
    """Rows [R, h] in the order of their experts, of which ``tokens_per_expert`` are each one's.

    Rows beyond the sum of the counts belong to no expert. ``probs`` [R] are the rows'.
    """

    rows: Tensor
    probs: Tensor
    tokens_per_expert: Tensor
    places: Tensor  # [b, t, k]: the row of each choice, -1 where it has none


def own_tokens(x: Tensor, mesh: Mesh) -> Tensor:
    """Those tokens of x [b, t, h] that no other rank of tp has."""
    if mesh.tp.size == 1 or mesh.sequence_parallel:
        return x
    raise NotImplementedError("experts at tp above 1 work with sequence parallel")


def all_tokens(y: Tensor, x: Tensor, mesh: Mesh) -> Tensor:
    """All ranks' tokens, as many as x [b, t, h] has: the inverse of ``own_tokens``."""
    if mesh.tp.size == 1 or mesh.sequence_parallel:
        return y
    raise NotImplementedError("experts at tp above 1 work with sequence parallel")


def dispatch(
    x: Tensor,
    probs: Tensor,
    experts: Tensor,
    num_experts: int,
    mesh: Mesh,
    *,
    capacity: int | None = None,
) -> Dispatched:
    """x [b, t, h] to the rows of its ``experts`` [b, t, k], -1 for none."""
    if mesh.ep.size > 1 or mesh.etp.size > 1:
        raise NotImplementedError("ep and etp above 1")
    chosen = experts.flatten()
    chosen = torch.where(chosen < 0, num_experts, chosen)
    order = chosen.argsort(stable=True)
    k = experts.shape[-1]
    rows = x.flatten(0, 1).repeat_interleave(k, 0)[order]
    places = torch.empty_like(order).scatter_(
        0, order, torch.arange(order.shape[0], device=order.device)
    )
    places = torch.where(experts < 0, -1, places.view_as(experts))
    counts = count_experts(experts, num_experts).sum(0)
    return Dispatched(rows, probs.flatten()[order], counts, places)


def combine(y: Tensor, sent: Dispatched) -> Tensor:
    """The sum of each token's rows of y [R, h]: [b, t, h]."""
    rows = y[sent.places.clamp(min=0)]  # [b, t, k, h]
    return torch.where(sent.places[..., None] < 0, 0.0, rows).sum(2)
