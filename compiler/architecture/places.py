"""How long a sequence a model is read at."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from specc.runtime import PositionEmbedding

DEFAULT_LENGTH = 1024  # where nothing in the model says how long a sequence may be

# Where a config says how long a sequence may be: ours, then other people's words for it.
_NAMES = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "context_length",
    "block_size",
    "n_positions",
    "n_ctx",
)


def default_length(config: Any, model: nn.Module) -> int:
    """The longest sequence that the page is made for."""
    sources = (config, getattr(model, "config", None))
    found = [getattr(c, name, None) for c in sources for name in _NAMES]
    found += [m.max_positions for m in model.modules() if isinstance(m, PositionEmbedding)]
    known = [n for n in found if type(n) is int and n > 0]
    return known[0] if known else DEFAULT_LENGTH


def places_for(length: int, model: nn.Module) -> int:
    """A prime of at most `length` that divides no size of the model, or `length`.

    A dimension of so many is one of places then: nothing else comes out as large.
    """
    sizes = {n for t in (*model.parameters(), *model.buffers()) for n in t.shape}
    for number in range(length, 4, -1):
        if _is_prime(number) and all(size % number for size in sizes):
            return number
    return length


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))
