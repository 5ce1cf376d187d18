"""Attention of the next places over all those before, whose keys and values were kept."""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_choice import Options
from .attention_masked import barred, under
from .decoding import Decoding


def keep_keys(
    k: Tensor, v: Tensor, decoding: Decoding, options: Options, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """k and v [b, s, g, d] of the next places, behind those of all before: [b, S, g, d].

    They are kept as attention gets them, positions applied. Raises NotImplementedError where an
    earlier place would have to look at later ones, and under dropout or a mask tensor.
    """
    unkept = {
        "attention that is not causal": not options.causal,
        "dropout": options.dropout > 0,
        "a mask tensor": mask is not None,
    }
    for what, given in unkept.items():
        if given:
            raise NotImplementedError(
                f"keys and values are not kept under {what}: read all tokens in every forward"
            )
    k, v = decoding.keep(k, v)
    return k, v


def attend_kept(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, places: Tensor, options: Options
) -> Tensor:
    """q [b, s, n, d] of the last ``places`` [s]; k, v [b, S, g, d] of all -> [b, s, n, d]."""
    first = 0
    if options.window is not None:  # what none of these places sees
        first = max(0, k.shape[1] - places.shape[0] - options.window + 1)
    seen = torch.arange(first, k.shape[1], device=q.device)
    blocked = barred(places, seen, causal=True, window=options.window)
    return under(q, k[:, first:], v[:, first:], sinks, blocked[None, None], options)
