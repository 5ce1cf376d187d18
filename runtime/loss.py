"""The head and the loss: cross entropy over a vocabulary that tp may cut."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunked_head import chunked_linear_cross_entropy
from .collectives import all_gather
from .linear import ColumnParallelLinear
from .mesh import Mesh
from .vocab_parallel import IGNORED, Vocabulary, softcap, vocab_parallel_cross_entropy


def linear_cross_entropy(
    x: Tensor,
    output_layer: ColumnParallelLinear,
    labels: Tensor,
    mesh: Mesh,
    *,
    softcap: float | None = None,
) -> Tensor:
    """Each token's loss, float32 [b, s], from x [b, t, h] and labels [b, s] (already shifted).

    Zero where the label is -100. The logits stay cut over tp, whatever the layer's own forward
    does with them. With ``mesh.compiled`` it is one region of torch.compile. ``softcap``: logits
    become softcap * tanh(logits / softcap).

    With ``mesh.loss_chunks`` above 1 the positions are worked on in so many pieces, one after the
    other, and the logits [b, s, v / tp] never exist whole; the backward makes them again. It saves
    memory where nothing is compiled, or where logits in x's dtype are larger than the weight in
    float32: at 8192 tokens of 4096 over 128256 entries (H200, bfloat16, forward and backward) 1
    piece takes 41 ms and 2.1 GiB compiled, 50 ms and 10.9 GiB not; 8 pieces 62 ms and 2.3 GiB
    compiled, 84 ms and 2.3 GiB not.

    | | collective | shape |
    |---|---|---|
    | forward | all-gather of x over tp, under sequence parallel only | [b, t, h] -> [b, s, h] |
    | | those of ``cross_entropy``, once for all pieces | |
    | backward | reduce-scatter of x's gradient, under sequence parallel only | the reverse |

    Saves x, gathered, and the logits as ``cross_entropy`` does, or none where they are in pieces.
    """
    weight, bias, size = output_layer.weight, output_layer.bias, output_layer.out_features
    if mesh.loss_chunks == 1:
        region = _compiled_head() if mesh.compiled else _head
        return region(x, weight, bias, labels, mesh, size, softcap)
    x = _whole_sequence(x, mesh)
    _check((*x.shape[:2], weight.shape[0]), labels, mesh, size)
    return chunked_linear_cross_entropy(
        x,
        weight,
        bias,
        labels,
        Vocabulary(size, mesh.tp),
        softcap=softcap,
        chunks=mesh.loss_chunks,
        compiled=mesh.compiled,
    )


def _head(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    mesh: Mesh,
    vocab_size: int,
    cap: float | None,
) -> Tensor:
    x = _whole_sequence(x, mesh)
    logits = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    if cap is not None:
        logits = softcap(logits, cap)
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
    | backward | all-reduce (sum) over tp, of the losses' gradient | [b, s] |

    Saves their logarithms in float32 in one process, and cut over tp the logits as they are.
    Raises ValueError for shapes that do not fit. A label outside the vocabulary raises in one
    process; cut over tp, or in pieces, it makes that token's loss and gradients NaN, as raising
    would wait for the device.
    """
    _check(logits.shape, labels, mesh, vocab_size)
    if mesh.tp.size == 1:
        flat = F.cross_entropy(
            logits.float().flatten(0, 1),
            labels.flatten(),
            ignore_index=IGNORED,
            reduction="none",
        )
        return flat.view_as(labels)
    return vocab_parallel_cross_entropy(logits, labels, Vocabulary(vocab_size, mesh.tp))


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


def _check(shape: Sequence[int], labels: Tensor, mesh: Mesh, vocab_size: int) -> None:
    columns = -(-vocab_size // mesh.tp.size)
    if shape[-1] != columns:
        raise ValueError(
            f"logits have {shape[-1]} columns on this rank; a vocabulary of {vocab_size} "
            f"over tp={mesh.tp.size} gives {columns}"
        )
    if tuple(shape[:-1]) != labels.shape:
        raise ValueError(
            f"logits {list(shape)} and labels {list(labels.shape)} do not fit: they have "
            "to be [b, s, v / tp] and [b, s]"
        )


def _described(output: object) -> str:
    if isinstance(output, Tensor):
        return f"a tensor {list(output.shape)}"
    if isinstance(output, tuple):
        return "a tuple of " + (", ".join(_described(item) for item in output) or "nothing")
    return f"a {type(output).__name__}"
