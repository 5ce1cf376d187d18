"""How many tokens an expert takes, and which ones are dropped beyond."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .collectives import start_all_gather, start_all_reduce, wait
from .mesh import Mesh
from .moe_tokens import micro_batch_tokens, token_places

POLICIES = ("probs", "position")


def expert_capacity(
    tokens: Tensor, topk: int, num_experts: int, capacity_factor: float, mesh: Mesh
) -> int:
    """How many tokens an expert takes: ceil(T k / E x ``capacity_factor``).

    T is the tokens of the whole micro-batch, of which this rank's are ``tokens`` [b, t, ...]; with
    ``mesh.capacity_scope`` "rank" just these, as in Megatron-Core. Waits for the device only where
    the tokens of a micro-batch are no known multiple of this rank's (tp without sequence parallel).
    """
    if mesh.capacity_scope == "rank":
        count = tokens.shape[0] * tokens.shape[1]
    else:
        count = int(micro_batch_tokens(tokens, mesh))
    return math.ceil(count * topk / num_experts * capacity_factor)


def within_capacity(
    probs: Tensor,
    experts: Tensor,
    num_experts: int,
    capacity_factor: float,
    mesh: Mesh,
    *,
    policy: str = "probs",
) -> Tensor:
    """``experts`` [b, t, k] with -1 where one has more tokens than its capacity.

    Of the tokens that chose an expert it keeps, by ``policy``, those with the highest ``probs`` or
    those that come first. The order of tokens is that of the whole micro-batch: by place in the
    sequence, then by sequence; it also decides between equal probabilities. So at any layout the
    same tokens are dropped. Not so with ``mesh.capacity_scope`` "rank": each rank fills a capacity
    of its own with its own tokens, as in Megatron-Core.

    | | collective | shape |
    |---|---|---|
    | forward | all-gather over tp x cp, of the choices; none for scope "rank" | [b t k, 3] |
    | backward | none: a choice has no gradient | |

    Raises ValueError for a policy that is none.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    b, t, k = experts.shape
    capacity = expert_capacity(experts, k, num_experts, capacity_factor, mesh)
    places = token_places(t, mesh, experts.device)
    order = places[:, None] * b + torch.arange(b, device=places.device)[:, None, None]  # [b, t, 1]
    flat = torch.stack(
        (order.expand(b, t, k), experts, probs.detach().float().view(torch.int32)), -1
    ).flatten(0, 2)
    own = slice(0, b * t * k)
    if mesh.tp_cp.size > 1 and mesh.capacity_scope == "micro_batch":
        flat, first = _gathered(flat, num_experts, mesh)
        own = slice(first, first + b * t * k)
    queued = _places_in_queue(flat, num_experts + 1, policy)
    return torch.where(queued[own].view_as(experts) < capacity, experts, -1)


def _gathered(flat: Tensor, num_experts: int, mesh: Mesh) -> tuple[Tensor, int]:
    """All ranks' choices [n, 3], and the number of this rank's first."""
    rows = flat.shape[0]
    if mesh.tp.size > 1 and not mesh.sequence_parallel:
        # tp may not divide the places, and then some ranks have fewer.
        length = torch.full((), rows, dtype=torch.int64, device=flat.device)
        rows = int(wait(start_all_reduce(length, mesh.tp, "max")))
        flat = torch.cat((flat, flat.new_full((rows - flat.shape[0], 3), num_experts)))
    return wait(start_all_gather(flat, mesh.tp_cp)), rows * mesh.tp_cp.rank


def _places_in_queue(choices: Tensor, num_experts: int, policy: str) -> Tensor:
    """Of each of ``choices`` [n, 3], how many others of the same expert come before it: [n].

    A choice is the place of its token in the order of all, its expert, and its probability's bits.
    """
    order, experts, probs = choices.unbind(-1)
    queue = order.argsort(stable=True)
    if policy == "probs":
        bits = probs.to(torch.int32).view(torch.float32)
        queue = queue[bits[queue].argsort(descending=True, stable=True)]
    queue = queue[experts[queue].argsort(stable=True)]
    counts = experts.new_zeros(num_experts).scatter_add_(0, experts, torch.ones_like(experts))
    starts = counts.cumsum(0) - counts
    places = torch.arange(queue.shape[0], device=queue.device) - starts[experts[queue]]
    return torch.empty_like(places).scatter_(0, queue, places)
