"""The head and the loss on a piece of the tokens at a time: no logits of all tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .vocab_parallel import (
    Vocabulary,
    logits_gradient,
    losses,
    softcap,
    softcap_slope,
    statistics,
    token_weights,
)


def chunked_linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocabulary: Vocabulary,
    *,
    softcap: float | None,
    chunks: int,
    compiled: bool,
) -> Tensor:
    """Each token's loss, float32 [b, s], from x [b, s, h], weight [v, h] and labels [b, s].

    The positions are cut into ``chunks`` pieces. The forward keeps x and a number for each token;
    the backward makes each piece's logits again, as their gradients have to be scaled by token
    before they are summed over tokens. Sums over the pieces are float32. Collectives are those of
    ``cross_entropy``, once for all pieces.
    """
    found: Tensor = _ChunkedHead.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, labels, vocabulary, softcap, chunks, compiled
    )
    return found


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        vocabulary: Vocabulary,
        cap: float | None,
        chunks: int,
        compiled: bool,
    ) -> Tensor:
        weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
        piece_statistics = _region(_statistics, compiled)
        parts = [
            piece_statistics(x[:, places], weight, bias, labels[:, places], vocabulary, cap)
            for places in _pieces(x.shape[1], chunks)
        ]
        found, whole = losses(torch.cat(parts, -1), labels, vocabulary)
        ctx.save_for_backward(x, weight, bias, labels, whole)
        ctx.vocabulary, ctx.cap, ctx.chunks, ctx.compiled = vocabulary, cap, chunks, compiled
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, labels, whole = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad[:3]
        weights = token_weights(grads[0], labels, ctx.vocabulary)
        piece_gradient = _region(_gradient, ctx.compiled)
        dx = torch.empty_like(x) if for_x else None
        dw = x.new_zeros(weight.shape, dtype=torch.float32) if for_weight else None
        db = x.new_zeros(weight.shape[:1], dtype=torch.float32) if for_bias else None
        for places in _pieces(x.shape[1], ctx.chunks):
            piece = x[:, places]
            gradient = piece_gradient(
                piece, weight, bias, labels[:, places], ctx.vocabulary, ctx.cap,
                whole[:, places], weights[:, places],
            )  # fmt: skip
            if dx is not None:
                dx[:, places] = gradient @ weight
            if dw is not None:
                _add_product(dw, gradient.flatten(0, 1).t(), piece.flatten(0, 1))
            if db is not None:
                db += gradient.sum((0, 1), dtype=torch.float32)
        # Rounded once to what a product in this dtype gives, with FSDP or without.
        dw, db = (None if sums is None else sums.to(x.dtype) for sums in (dw, db))
        return dx, dw, db, None, None, None, None, None


def _pieces(length: int, chunks: int) -> list[slice]:
    size = -(-length // chunks)
    return [slice(first, first + size) for first in range(0, length, size)]


def _statistics(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocabulary: Vocabulary,
    cap: float | None,
) -> Tensor:
    logits = F.linear(x, weight, bias)
    return statistics(logits if cap is None else softcap(logits, cap), labels, vocabulary)


def _gradient(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocabulary: Vocabulary,
    cap: float | None,
    whole: Tensor,
    weights: Tensor,
) -> Tensor:
    logits = F.linear(x, weight, bias)
    if cap is None:
        return logits_gradient(logits, labels, vocabulary, whole, weights)
    capped = softcap(logits, cap)
    gradient = logits_gradient(capped, labels, vocabulary, whole, weights)
    return (gradient * softcap_slope(capped, cap)).to(x.dtype)


def _region(function: Callable[..., Tensor], compiled: bool) -> Callable[..., Tensor]:
    return _compiled(function) if compiled else function


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function, fullgraph=True)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, in float32: a [m, t] and b [t, n] of any dtype."""
    if a.is_cuda and a.dtype != torch.float32:
        # The product's own accumulator: no kernel of its own to add.
        torch.ops.aten.addmm.dtype_out(total, a, b, torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float())
