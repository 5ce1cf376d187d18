"""The kernels that hand out a block's log-sum-exp and take one: of a GPU, or explicit products."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from . import attention_explicit
from .attention_blocks import Block
from .attention_explicit import BARRED, Rules
from .documents import Documents
from .positions import Run


def forward(
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block: Block,
    rules: Rules,
    documents: Documents | None,
) -> tuple[Tensor, Tensor]:
    """q [b, s, n, d], k, v [b, t, g, d] -> out [b, s, n, d], log-sum-exp float32 [b, n, s]."""
    if kernel == "explicit":
        return attention_explicit.forward(q, k, v, block, rules)
    if kernel == "cudnn":
        return _cudnn_forward(q, k, v, block, rules.options.scale)
    if documents is None:
        y = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, _causal(block), False,
            scale=rules.options.scale, **_bounds(block),
        )  # fmt: skip
        return y[0], y[1]
    lengths = _lengths(documents, block)
    y = torch.ops.aten._flash_attention_forward(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), *lengths, 0.0,
        _causal(block), False, scale=rules.options.scale, **_bounds(block),
    )  # fmt: skip
    lse = y[1].unflatten(1, q.shape[:2]).transpose(0, 1)
    # The kernel writes +inf where a query sees no key.
    return y[0].view_as(q), lse.masked_fill(lse == torch.inf, BARRED)


def backward(
    kernel: str,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    block: Block,
    rules: Rules,
    documents: Documents | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k, v; ``out`` and ``lse`` over all keys, not only this block's."""
    if kernel == "explicit":
        return attention_explicit.backward(grad, q, k, v, out, lse, block, rules)
    if kernel == "cudnn":
        return _cudnn_backward(grad, q, k, v, out, lse, block, rules.options.scale)
    state = torch.zeros(2, dtype=torch.uint64, device=q.device)  # of a dropout that is not there
    unused = torch.empty(0, device=q.device)
    if documents is None:
        y = torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, lse.contiguous(), None, None, q.shape[1], k.shape[1], 0.0,
            _causal(block), state, unused, scale=rules.options.scale, **_bounds(block),
        )  # fmt: skip
        return cast(tuple[Tensor, Tensor, Tensor], y)
    lengths = _lengths(documents, block)
    dq, dk, dv = torch.ops.aten._flash_attention_backward(
        grad.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), out.flatten(0, 1),
        lse.transpose(0, 1).flatten(1).contiguous(), *lengths, 0.0,
        _causal(block), state, unused, scale=rules.options.scale, **_bounds(block),
    )  # fmt: skip
    return dq.view_as(q), dk.view_as(k), dv.view_as(v)


def _causal(block: Block) -> bool:
    return block.left is None and block.right == 0


def _bounds(block: Block) -> dict[str, int | None]:
    return {"window_size_left": block.left, "window_size_right": block.right}


def _lengths(documents: Documents, block: Block) -> tuple[Tensor, Tensor, int, int]:
    """As the kernel of varying length takes them: bounds and longest of queries, and of keys."""
    longest = documents.longest
    rows, keys = _sections(documents, block.q), _sections(documents, block.k)
    return rows, keys, min(longest, block.q.size), min(longest, block.k.size)


def _sections(documents: Documents, run: Run) -> Tensor:
    """Where each document's part of a run begins in the rows of all sequences [b * count + 1]."""
    bounds = documents.bounds.clamp(run.place, run.place + run.size) - run.place
    sequences = bounds.shape[0]
    before = torch.arange(sequences, dtype=torch.int32, device=bounds.device) * run.size
    begins = (bounds[:, :-1] + before[:, None]).flatten()
    return torch.cat((begins, begins.new_full((1,), sequences * run.size)))


def _cudnn_forward(
    q: Tensor, k: Tensor, v: Tensor, block: Block, scale: float
) -> tuple[Tensor, Tensor]:
    y = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, True, 0.0, _causal(block),
        False, scale=scale,
    )  # fmt: skip
    return y[0].transpose(1, 2), y[1].squeeze(-1)


def _cudnn_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    block: Block,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    unused = torch.zeros((), dtype=torch.int64, device=q.device)  # the state of a dropout
    dq, dk, dv = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        grad.transpose(1, 2), q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
        out.transpose(1, 2), lse.contiguous()[..., None], unused, unused, None, None, None,
        q.shape[1], k.shape[1], 0.0, _causal(block), scale=scale,
    )  # fmt: skip
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)
