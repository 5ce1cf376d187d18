"""States carried from chunk to chunk of a sequence, one after the other."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from .standalone import STANDALONE


def before_chunks(turned: Tensor, added: Tensor) -> Tensor:
    """The state before each of z chunks, of which each makes turned @ state + added; zero at first.

    [b, z, .., d, d] and [b, z, .., d, e] -> [b, z, .., d, e]. Saved: ``turned`` and the states.
    """
    if STANDALONE:
        states = [torch.zeros_like(added[:, 0])]
        for chunk in range(added.shape[1] - 1):
            states.append(turned[:, chunk] @ states[-1] + added[:, chunk])
        return torch.stack(states, 1)
    y: Tensor = _BeforeChunks.apply(turned, added)  # type: ignore[no-untyped-call]
    return y


# One operation of a compiled layer's graph: every chunk's step in it would take minutes to compile.
@torch.library.custom_op("specc::before_chunks", mutates_args=())
def _scan(turned: Tensor, added: Tensor) -> Tensor:
    states = torch.empty_like(added, memory_format=torch.contiguous_format)
    states[:, 0] = 0
    for chunk in range(added.shape[1] - 1):
        states[:, chunk + 1] = turned[:, chunk] @ states[:, chunk] + added[:, chunk]
    return states


@_scan.register_fake
def _(turned: Tensor, added: Tensor) -> Tensor:
    return torch.empty_like(added, memory_format=torch.contiguous_format)


class _BeforeChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, turned: Tensor, added: Tensor) -> Tensor:
        states = cast(Tensor, _scan(turned, added))
        ctx.save_for_backward(turned, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        turned, states = ctx.saved_tensors
        # The same from the last chunk to the first: the gradient of the state after each.
        after = cast(Tensor, _scan(turned.flip(1).mT, grads[0].flip(1))).flip(1)
        return after @ states.mT, after
