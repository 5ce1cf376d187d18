"""What a rank keeps of a forward for its backward, from the shapes alone.

Bytes are those of eager layers on a GPU; under ``--compile`` they are fewer, as inductor chooses.
"""

from __future__ import annotations

import math

from .model_shape import ModelShape
from .workload import Workload


def saved_activations(shape: ModelShape, work: Workload, layer: int = 0) -> int:
    """Bytes that one layer's forward leaves for its backward, its input included.

    | what keeps it | what | elements |
    |---|---|---|
    | both norms | x, and float32 statistics of each place | b t h, b t (2 for layer norm) |
    | linear_qkv, linear_fc1 | the norm's output, this rank's places | b t h each |
    | attention and linear_proj | see ``saved_by_attention`` | |
    | activation | linear_fc1's output; gated: silu(gate) as well | b s f; b s 3 f |
    | linear_fc2 | the activation's output | b s f |
    | dropout, after each half | the mask, one byte each | b t h |

    Without FSDP layers cast their weights: those of linear layers and norms stay for the backward.
    Recomputed in full a layer leaves x.
    """
    size = work.bytes
    x = work.tokens_between * shape.hidden
    if work.recomputes(layer):
        return x * size
    statistics = 4 * work.tokens_between * (2 if shape.layer_norm else 1)
    ffn = work.tokens * shape.ffn // work.degrees.tp * size
    saved = 4 * x * size + 2 * statistics + saved_by_attention(shape, work)
    saved += ffn * (4 if shape.gated else 2)
    if shape.dropout:
        saved += 2 * x
    if not work.degrees.zero and size < 4:
        weights = shape.layer_parameters(work.degrees.tp)
        saved += size * (sum(p.count for p in weights if len(p.shape) == 2) + 2 * shape.hidden)
    return saved


def saved_by_attention(shape: ModelShape, work: Workload) -> int:
    """Bytes of linear_qkv's output (where v is a part of it), of q and k once rotary positions have
    turned them, of y (linear_proj's input) and of the float32 log-sum-exp [b, n, s].

    Heads exchanged for positions (a2a) are copies: q, k, v as attended, y here and there. Where
    attention is recomputed there is no log-sum-exp, and nothing as attended.
    """
    degrees, again = work.degrees, work.recomputes_attention
    heads, groups = shape.heads // degrees.tp, shape.groups // degrees.tp
    channels = work.tokens * shape.head_dim * work.bytes  # of one head
    lse = 0 if again else 4 * heads * work.tokens
    if degrees.cp > 1 and degrees.cp_comm_type == "a2a" and not again:
        return (3 * heads + 2 * math.lcm(groups, degrees.cp)) * channels + lse
    turned = 0 if shape.positions else heads + groups
    return (heads + 2 * groups + turned + heads) * channels + lse


def saved_once(shape: ModelShape, work: Workload) -> int:
    """Bytes kept once for all layers: rotary tables, float32 [s, d] each, or the mask of the
    embedding's dropout."""
    if shape.positions:
        return work.tokens_between * shape.hidden if shape.dropout else 0
    return 2 * 4 * work.length // work.degrees.cp * shape.head_dim
