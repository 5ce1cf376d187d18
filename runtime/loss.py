"""The head and the loss: cross entropy over a vocabulary that tp may cut."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .collectives import all_gather, all_reduce, all_reduce_max
from .linear import ColumnParallelLinear
from .mesh import Mesh

IGNORED = -100  # a label that asks for no loss, as in PyTorch


def linear_cross_entropy(
    x: Tensor, output_layer: ColumnParallelLinear, labels: Tensor, mesh: Mesh
) -> Tensor:
    """Each token's loss, float32 [b, s], from x [b, t, h] and labels [b, s] (already shifted).

    Zero where the label is -100. The logits stay cut over tp, whatever the layer's own forward
    does with them. With ``mesh.compiled`` it is one region of torch.compile, which keeps no float32
    logits: 2.0 GiB instead of 10.8 for 8192 tokens over 128256 entries (H200).

    | | collective | shape |
    |---|---|---|
    | forward | all-gather of x over tp, under sequence parallel only | [b, t, h] -> [b, s, h] |
    | | those of ``cross_entropy`` | |
    | backward | reduce-scatter of x's gradient, under sequence parallel only | the reverse |
    """
    region = _compiled_head() if mesh.compiled else _head
    return region(
        x, output_layer.weight, output_layer.bias, labels, mesh, output_layer.out_features
    )


def _head(
    x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, mesh: Mesh, vocab_size: int
) -> Tensor:
    x = _whole_sequence(x, mesh)
    logits = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    return cross_entropy(logits, labels, mesh, vocab_size)


@functools.cache
def _compiled_head() -> Callable[..., Tensor]:
    return torch.compile(_head, fullgraph=True)


def cross_entropy(logits: Tensor, labels: Tensor, mesh: Mesh, vocab_size: int) -> Tensor:
    """Each token's loss, float32 [b, s], from this rank's logits [b, s, ceil(v / tp)].

    Rank r holds the columns from r * ceil(v / tp); those at and beyond ``vocab_size`` are padding
    and take no part. Computed in float32; zero where the label is -100.

    | | collective | shape |
    |---|---|---|
    | forward | all-reduce (max) over tp, of each rank's logsumexp | [b, s] |
    | | all-reduce (sum) over tp, of the shares and of the label's logit | [2, b, s] |
    | backward | all-reduce (sum) over tp, of the latter's gradient | [2, b, s] |

    Saves the logits in float32. Raises ValueError for shapes that do not fit. A label outside the
    vocabulary raises in one process; cut over tp it makes that token's loss and gradients NaN, as
    raising would wait for the device.
    """
    _check(logits, labels, mesh, vocab_size)
    if mesh.tp.size == 1:
        flat = F.cross_entropy(
            logits.float().flatten(0, 1),
            labels.flatten(),
            ignore_index=IGNORED,
            reduction="none",
        )
        return flat.view_as(labels)
    return _vocab_parallel(logits, labels, mesh, vocab_size)


def local_loss(
    output: Tensor | tuple[Tensor, ...], labels: Tensor, kind: str, mesh: Mesh, tokens: int | Tensor
) -> Tensor:
    """What this rank calls backward on: a float32 scalar that sums, over all ranks, to the loss.

    ``kind`` is the page's LOSS: "per_token" for losses [b, s], or "local_mean" for a mean over the
    labels that are not -100 in this call (a scalar, or a tuple that starts with one).
    ``tokens`` counts such labels in the whole step, over data parallel ranks and micro-batches.
    Each tp rank computes the same loss, so each takes 1 / tp of it. A call whose labels are all
    -100 adds zero.
    Raises ValueError for another kind, for tokens of 0, and for an output that is not of its kind.
    """
    if isinstance(tokens, int) and tokens < 1:
        raise ValueError(f"tokens={tokens}: a step needs one label at least that is not -100")
    if kind == "per_token":
        if not isinstance(output, Tensor) or output.shape != labels.shape:
            raise ValueError(
                f'LOSS is "per_token", so forward has to return one loss for each of the labels '
                f"{list(labels.shape)}, and it returned {_described(output)}"
            )
        total = output.float().sum()
    elif kind == "local_mean":
        mean = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(mean, Tensor) or mean.dim() != 0:
            raise ValueError(
                'LOSS is "local_mean", so forward has to return a scalar, or a tuple that starts '
                f"with one, and it returned {_described(output)}"
            )
        count = (labels != IGNORED).sum()
        # The mean over no label is NaN.
        total = torch.where(count > 0, mean.float() * count, 0.0)
    else:
        raise ValueError(f'LOSS is {kind!r}; it has to be "per_token" or "local_mean"')
    return total / tokens / mesh.tp.size


def _whole_sequence(x: Tensor, mesh: Mesh) -> Tensor:
    """[b, t, h] -> [b, s, h]"""
    if mesh.tp.size == 1:
        return x
    if not mesh.sequence_parallel:
        return x
    return all_gather(x, 1, mesh.tp)


def _vocab_parallel(logits: Tensor, labels: Tensor, mesh: Mesh, vocab_size: int) -> Tensor:
    first = mesh.tp.rank * logits.shape[-1]
    valid = min(max(vocab_size - first, 0), logits.shape[-1])
    if valid < logits.shape[-1]:
        logits = logits[..., :valid]
    logits = logits.float()
    part = logits.logsumexp(-1)  # -inf on a rank that holds padding only
    highest = all_reduce_max(part, mesh.tp)
    share = (part - highest).exp()
    own = _label_logits(logits, labels - first)
    share, own = all_reduce(torch.stack((share, own)), mesh.tp).unbind(0)
    loss = highest + share.log() - own
    ignored = labels == IGNORED
    known = ignored | ((labels >= 0) & (labels < vocab_size))
    return torch.where(ignored, 0.0, loss * torch.where(known, 1.0, torch.nan))


def _label_logits(logits: Tensor, index: Tensor) -> Tensor:
    """logits[..., index], zero where this rank does not hold that column."""
    if logits.shape[-1] == 0:
        return logits.sum(-1)  # zero, and a part of the graph as on the other ranks
    held = (index >= 0) & (index < logits.shape[-1])
    own = logits.gather(-1, torch.where(held, index, 0).unsqueeze(-1)).squeeze(-1)
    return torch.where(held, own, 0.0)


def _check(logits: Tensor, labels: Tensor, mesh: Mesh, vocab_size: int) -> None:
    columns = -(-vocab_size // mesh.tp.size)
    if logits.shape[-1] != columns:
        raise ValueError(
            f"logits have {logits.shape[-1]} columns on this rank; a vocabulary of {vocab_size} "
            f"over tp={mesh.tp.size} gives {columns}"
        )
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits {list(logits.shape)} and labels {list(labels.shape)} do not fit: they have "
            "to be [b, s, v / tp] and [b, s]"
        )


def _described(output: object) -> str:
    if isinstance(output, Tensor):
        return f"a tensor {list(output.shape)}"
    if isinstance(output, tuple):
        return "a tuple of " + (", ".join(_described(item) for item in output) or "nothing")
    return f"a {type(output).__name__}"
