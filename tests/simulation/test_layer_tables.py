"""The tables of the layers' docstrings, by numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from single_layers import OUT, TP, B, H, S, run_layers

X = B * S * H * 2  # [b, s, h] in bf16
Y = B * S * OUT * 2


def table(forward: dict[Any, int], backward: dict[Any, int], saved: int) -> Any:
    return forward, backward, saved


GATHER, SCATTER, REDUCE = ("all_gather", X), ("reduce_scatter", X), ("all_reduce", X)
WITHOUT = {
    "column": table({}, {}, X),
    "column, gathered": table({("all_gather", Y): 1}, {("reduce_scatter", Y): 1}, X),
    "row": table({REDUCE: 1}, {REDUCE: 1}, Y // TP),
    "embedding": table({REDUCE: 1}, {REDUCE: 1}, 9 * B * S),
    "rms norm": table({}, {}, X + 4 * B * S),
    "layer norm": table({}, {}, X + 8 * B * S),
    "zero-centered": table({}, {}, 2 * X + 4 * B * S + 4 * H),
}
WITH = {
    "column": table({GATHER: 1}, {GATHER: 1, SCATTER: 1}, X // TP),
    "column, gathered": table(
        {GATHER: 1, ("all_gather", Y): 1},
        {GATHER: 1, SCATTER: 1, ("reduce_scatter", Y): 1},
        X // TP,
    ),
    "row": table({SCATTER: 1}, {GATHER: 1}, Y // TP),
    "embedding": table({SCATTER: 1}, {GATHER: 1}, 9 * B * S),
    "rms norm": table({}, {}, (X + 4 * B * S) // TP),
    "layer norm": table({}, {}, (X + 8 * B * S) // TP),
    "zero-centered": table({}, {}, (2 * X + 4 * B * S) // TP + 4 * H),
}


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_layers_do_as_their_docstrings_say(
    in_worker: Callable[..., Any], sequence_parallel: bool
) -> None:
    expected = WITH if sequence_parallel else WITHOUT
    assert in_worker(run_layers, sequence_parallel) == expected
