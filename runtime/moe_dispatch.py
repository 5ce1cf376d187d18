"""Tokens to the rows of their experts, and back, in one process and over ep and etp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .collectives import all_gather
from .mesh import Mesh
from .moe_exchange import Exchange
from .moe_losses import count_experts


@dataclass(frozen=True, eq=False)
class Dispatched:
    """Rows [R, h] in the order of their experts, of which ``tokens_per_expert`` are each one's.

    Rows beyond the sum of the counts belong to no expert. ``probs`` [R] are the rows'. The rest is
    for ``combine``: ``places`` [b, t, k], the row of each choice as it left this rank, -1 where it
    has none; ``came`` [n], where each row that came from another rank stands here.
    """

    rows: Tensor
    probs: Tensor
    tokens_per_expert: Tensor
    places: Tensor
    came: Tensor | None = None
    exchange: Exchange | None = None


def own_tokens(x: Tensor, mesh: Mesh) -> Tensor:
    """Those tokens of x [b, t, h] that no other rank of tp has.

    Under sequence parallel each rank has such tokens alone. Else it takes a part of dimension 1:
    ceil(t / tp) of them, the last ranks fewer or none. No collective; the gradient of the others'
    tokens is zero here.
    """
    if mesh.tp.size == 1 or mesh.sequence_parallel:
        return x
    size = -(-x.shape[1] // mesh.tp.size)
    start = min(x.shape[1], size * mesh.tp.rank)
    return x.narrow(1, start, min(size, x.shape[1] - start))


def all_tokens(y: Tensor, x: Tensor, mesh: Mesh) -> Tensor:
    """All ranks' tokens, as many as x [b, t, h] has: the inverse of ``own_tokens``.

    Forward: all-gather over tp, backward reduce-scatter; neither under sequence parallel.
    """
    if mesh.tp.size == 1 or mesh.sequence_parallel:
        return y
    size = -(-x.shape[1] // mesh.tp.size)
    padded = F.pad(y, (0, 0, 0, size - y.shape[1]))
    return all_gather(padded, 1, mesh.tp).narrow(1, 0, x.shape[1])


def dispatch(
    x: Tensor,
    probs: Tensor,
    experts: Tensor,
    num_experts: int,
    mesh: Mesh,
    *,
    capacity: int | None = None,
) -> Dispatched:
    """x [b, t, h] to the rows of its ``experts`` [b, t, k], which ``probs`` [b, t, k] go with.

    An expert of -1 is none: the row goes nowhere. Experts are dealt out over ep in blocks. By
    ``mesh.moe_token_dispatcher_type``, with R the rows that come and n those that leave:

    | | "alltoall" | "allgather" |
    |---|---|---|
    | forward | counts; all-to-all of rows over ep, [n, h] -> [R, h] | all-gather of x over ep |
    | at etp above 1 | each rank's rows to all of etp | all-gather of x over etp |
    | ``combine`` | the reverse, summed over etp | reduce-scatter over etp and ep |
    | backward | the other's forward | the other's forward |

    At ep x etp above 1 the host waits once for the counts, else nothing waits. ``capacity``: every
    expert gets as many rows, those that no token fills are zero.
    """
    if mesh.ep.size == 1 and mesh.etp.size == 1:
        return _padded(Dispatched(*_by_expert(x, probs, experts, num_experts)), capacity)
    slots = _slots(capacity, mesh)
    if mesh.moe_token_dispatcher_type == "allgather":
        return _padded(_by_all_gather(x, probs, experts, num_experts, mesh), slots)
    rows, row_probs, counts, places = _by_expert(x, probs, experts, num_experts)
    exchange = Exchange.of(counts, mesh)
    rows, row_probs = exchange.there(rows), exchange.there(row_probs)
    order = exchange.experts.argsort(stable=True)
    came = _inverse(order)
    counts = exchange.counts
    return _padded(Dispatched(rows[order], row_probs[order], counts, places, came, exchange), slots)


def combine(y: Tensor, sent: Dispatched) -> Tensor:
    """The sum of each token's rows of y [R, h]: [b, t, h]. At etp above 1 y is a part, summed."""
    if sent.exchange is None:
        return _of_tokens(y, sent.places)
    if sent.came is None:
        return sent.exchange.scattered(_of_tokens(y, sent.places))
    return _of_tokens(sent.exchange.back(y[sent.came]), sent.places)


def _by_expert(
    x: Tensor, probs: Tensor, experts: Tensor, num_experts: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows [b t k, h] and their probs in the order of experts, those of none last; counts [E], and
    the place of each choice."""
    chosen = torch.where(experts < 0, num_experts, experts).flatten()
    order = chosen.argsort(stable=True)
    places = torch.where(experts < 0, -1, _inverse(order).view_as(experts))
    rows: Tensor = _ToRows.apply(x, order, places)  # type: ignore[no-untyped-call]
    counts = count_experts(experts, num_experts).sum(0)
    # Of a row of none the gradient is undefined, and not even its product with zero may come back.
    row_probs = torch.where(chosen[order] < num_experts, probs.flatten()[order], 0.0)
    return rows, row_probs, counts, places


def _inverse(order: Tensor) -> Tensor:
    """Where each entry of a permutation stands in it."""
    places = torch.empty_like(order)
    places[order] = torch.arange(order.shape[0], device=order.device)
    return places


def _of_tokens(y: Tensor, places: Tensor) -> Tensor:
    """The sum over the k choices of each token's rows of y."""
    x: Tensor = _ToTokens.apply(y, places)  # type: ignore[no-untyped-call]
    return x


class _ToRows(torch.autograd.Function):
    """Each token's k rows; their gradients come back in a fixed order of sums, by no atomic."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return x.flatten(0, 1)[order // places.shape[-1]]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return _summed(grads[0], places), None, None


class _ToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = y.shape[0]
        return _summed(y, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        spare = torch.where(places < 0, ctx.rows, places).flatten()
        copies = grads[0].unsqueeze(2).expand(*places.shape, -1).flatten(0, 2)
        dy = copies.new_zeros(ctx.rows + 1, copies.shape[1]).index_copy_(0, spare, copies)
        return dy[:-1], None


def _summed(rows: Tensor, places: Tensor) -> Tensor:
    """[R, h] and places [b, t, k], of which -1 is none: [b, t, h]."""
    if torch.compiler.is_compiling():
        # How many rows there are may be known on the device alone. -1 is the row of zeros, which
        # is no copy of the rest: what reads them is one kernel.
        return F.pad(rows, (0, 0, 0, 1))[places].sum(2)
    if not rows.shape[0]:
        return rows.new_zeros(*places.shape[:2], rows.shape[1])
    found = rows[places.clamp(min=0)]
    return torch.where(places[..., None] < 0, 0.0, found).sum(2)


def _by_all_gather(
    x: Tensor, probs: Tensor, experts: Tensor, num_experts: int, mesh: Mesh
) -> Dispatched:
    """Every rank sees all tokens of ep x etp, and keeps the rows of its own experts."""
    exchange = Exchange.of_all(x, mesh)
    x, probs = exchange.gathered(x), exchange.gathered(probs)
    experts = exchange.gathered(experts, fill=-1)
    own = num_experts // mesh.ep.size
    here = experts - own * mesh.ep.rank
    here = torch.where((experts >= 0) & (here >= 0) & (here < own), here, -1)
    rows, row_probs, counts, places = _by_expert(x, probs, here, own)
    taken = int(counts.sum())
    return Dispatched(rows[:taken], row_probs[:taken], counts, places, None, exchange)


def _slots(capacity: int | None, mesh: Mesh) -> int | None:
    """The most rows that an expert gets: ``capacity`` from each micro-batch, or from each rank."""
    if capacity is None:
        return None
    senders = mesh.ep.size * mesh.etp.size
    if mesh.capacity_scope == "rank":
        return capacity * senders
    shared = mesh.tp_cp.size
    aligned = senders % shared == 0 or shared % senders == 0
    return capacity * (-(-senders // shared) + (not aligned))


def _padded(sent: Dispatched, slots: int | None) -> Dispatched:
    """With ``slots`` rows for each expert, in place of as many as it has."""
    if slots is None:
        return sent
    counts = sent.tokens_per_expert
    experts = counts.shape[0]
    rows = sent.rows
    # Where each row stands: rows beyond the counts (of dropped choices) go behind the last slot.
    number = torch.arange(rows.shape[0], device=rows.device)
    ends = counts.cumsum(0)
    expert = torch.searchsorted(ends, number, right=True)
    starts = F.pad(ends, (1, 0))
    place = torch.where(expert < experts, number - starts[expert] + slots * expert, experts * slots)
    wide = rows.new_zeros(experts * slots + 1, rows.shape[1]).index_copy(0, place, rows)
    probs = sent.probs.new_zeros(experts * slots + 1).index_copy(0, place, sent.probs)
    places, came = sent.places, sent.came
    if came is None:
        places = torch.where(places < 0, -1, F.pad(place, (0, 1))[places])  # of no rows, too
    else:
        came = place[came]
    counts = torch.full_like(counts, slots)
    return Dispatched(wide[:-1], probs[:-1], counts, places, came, sent.exchange)
