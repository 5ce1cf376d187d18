"""The collectives of a step, from the shapes alone: the tables of the layers as functions.

A collective counts with the bytes of its larger side: what a gather returns, what a reduce-scatter
takes. Waiting is no collective.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from .model_shape import LocalParameter, ModelShape
from .workload import Workload


@dataclass(frozen=True)
class Collective:
    """``kind``: all_reduce, all_gather, reduce_scatter or all_to_all; ``axis`` of the mesh, also
    "fsdp" (what FSDP cuts over) and "world"."""

    kind: str
    axis: str
    bytes: int


Collectives = Counter[Collective]


@dataclass(frozen=True)
class Traffic:
    """What one forward and one backward communicate, of a part of the model."""

    forward: Collectives
    backward: Collectives

    def times(self, count: int) -> Collectives:
        """Both, so often."""
        return Counter({key: n * count for key, n in (self.forward + self.backward).items()})


def layer_collectives(shape: ModelShape, work: Workload, layer: int = 0) -> Traffic:
    """Of one layer and one micro-batch over tp and cp: two column-parallel and two row-parallel
    linear layers, and attention. FSDP's are in ``sharding_collectives``.

    Recomputed in full, the backward has the forward's once more, but for a reduction that ends the
    layer (dropout comes after it): nothing in the backward reads what it returns.
    """
    degrees = work.degrees
    forward, backward = attention_collectives(shape, work)
    forward, backward = forward.copy(), backward.copy()
    whole = work.tokens * shape.hidden * work.bytes  # [b, s, h]
    reduction = _reduction(work, whole)
    if degrees.sequence_parallel:
        gather = Collective("all_gather", "tp", whole)
        forward += Counter({gather: 2, reduction: 2})
        backward += Counter({gather: 4, reduction: 2})
    elif degrees.tp > 1:
        forward += Counter({reduction: 2})
        backward += Counter({reduction: 2})
    if work.recomputes(layer):
        again = forward.copy()
        if degrees.tp > 1 and not shape.dropout:
            again -= Counter({reduction: 1})
        backward += again
    return Traffic(forward, backward)


def attention_collectives(shape: ModelShape, work: Workload) -> tuple[Collectives, Collectives]:
    """Forward and backward of ``attention`` over cp: of k and v, or of heads.

    Where attention is recomputed, the backward has the forward's once more, but for the last
    exchange of heads.
    """
    cp = work.degrees.cp
    if cp == 1:
        return Counter(), Counter()
    heads, groups = shape.heads // work.degrees.tp, shape.groups // work.degrees.tp
    channel = work.tokens * shape.head_dim * work.bytes  # of one head
    kv = 2 * groups * channel
    repeated: Collectives
    if work.degrees.cp_comm_type == "all_gather":
        gather = Collective("all_gather", "cp", cp * kv)
        forward = repeated = Counter([gather])
        backward = Counter([gather, Collective("reduce_scatter", "cp", cp * kv)])
    elif work.degrees.cp_comm_type == "p2p":
        turn = Collective("all_to_all", "cp", kv)
        forward = repeated = Counter({turn: cp - 1})
        backward = Counter({turn: 2 * cp - 1})
    else:
        came = heads + 2 * math.lcm(groups, cp)
        repeated = Counter([Collective("all_to_all", "cp", came * channel)])
        forward = repeated + Counter([Collective("all_to_all", "cp", heads * channel)])
        backward = forward
    return forward, backward + (repeated if work.recomputes_attention else Counter())


def end_collectives(shape: ModelShape, work: Workload) -> Traffic:
    """Of the embedding, the output layer and the loss, over tp, for one micro-batch."""
    if work.degrees.tp == 1:
        return Traffic(Counter(), Counter())
    whole = work.tokens * shape.hidden * work.bytes
    reduction = _reduction(work, whole)
    per_token = 4 * work.tokens  # float32 [b, s]
    forward = Counter([reduction])
    forward += Counter(
        [Collective("all_reduce", "tp", per_token), Collective("all_reduce", "tp", 2 * per_token)]
    )
    backward = Counter([Collective("all_reduce", "tp", per_token)])
    if work.degrees.sequence_parallel:
        gather = Collective("all_gather", "tp", whole)
        return Traffic(forward + Counter([gather]), backward + Counter([gather, reduction]))
    return Traffic(forward, backward + Counter([reduction]))


def sharding_collectives(shape: ModelShape, work: Workload) -> Collectives:
    """FSDP's of a whole step: the table of ``shard``, with each group's bytes.

    Gathers are in the compute dtype, reductions in float32; dimension 0 of each parameter is padded
    to a multiple of the ranks.
    """
    degrees, count = work.degrees, work.accumulation
    found: Collectives = Counter()
    if not degrees.zero:
        return found
    groups = [(shape.layer_parameters(degrees.tp), shape.layers, degrees.zero == 3)]
    groups.append((shape.other_parameters(degrees.tp), 1, False))
    for parameters, times, regathers in groups:
        whole = padded(parameters, work.shards)
        gathers = 2 * count if regathers else 1
        found[Collective("all_gather", "fsdp", whole * work.bytes)] += times * gathers
        reductions = 1 if degrees.zero == 1 else count
        found[Collective("reduce_scatter", "fsdp", whole * 4)] += times * reductions
        if degrees.dp_replicate > 1:
            shard = whole // work.shards * 4
            found[Collective("all_reduce", "dp_replicate", shard)] += times
    return found


def step_collectives(shape: ModelShape, work: Workload) -> Collectives:
    """Of everything once a step: the count of labels, the sums of replicated gradients, and the
    norm of all gradients."""
    degrees = work.degrees
    parameters = shape.layers * shape.layer_parameters(degrees.tp)
    parameters += shape.other_parameters(degrees.tp)
    told = 4 * len(parameters)  # on how many ranks each has a gradient
    found: Collectives = Counter()
    if degrees.cp * degrees.dp > 1:
        found[Collective("all_reduce", "dp_cp", 8)] += 1
        unsharded = 0 if degrees.zero else sum(p.count for p in parameters)
        found[Collective("all_reduce", "dp_cp", 4 * unsharded + told)] += 1
    if degrees.tp > 1:
        replicated = sum(p.padded(work.shards) // work.shards for p in parameters if p.replicated)
        found[Collective("all_reduce", "tp", 4 * replicated + told)] += 1
    if degrees.size > 1:
        found[Collective("all_reduce", "world", 4)] += 1
    return found


def padded(parameters: list[LocalParameter], parts: int) -> int:
    """Entries of a group of parameters, each padded so that FSDP can cut it."""
    return sum(parameter.padded(parts) for parameter in parameters)


def _reduction(work: Workload, size: int) -> Collective:
    kind = "reduce_scatter" if work.degrees.sequence_parallel else "all_reduce"
    return Collective(kind, "tp", size)
