"""The numbers that people ask of a model."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch

from specc.runtime.layouts import Degrees

from .figure import Figure
from .figures_parameters import ParameterCounts
from .figures_ranks import rank_figures
from .figures_saved import saved_figures
from .figures_shares import Shares
from .flops import SHARES, NotCountedError, Share, forward_flops
from .kv_cache import NothingSaysError, bytes_of_sequence, bytes_of_state, bytes_per_token
from .read import read
from .run import Run
from .tree import Architecture

_LABELS: dict[Share, str] = {
    "projections": "attention projections",
    "scores": "attention scores and values",
    "mixers": "recurrent mixers",
    "mlp": "MLP",
    "experts": "experts and their routers",
    "output": "output layer",
    "other": "other",
}


def figures(
    run: Run,
    *,
    layouts: Sequence[Degrees] = (),
    dtype: torch.dtype = torch.bfloat16,
    architecture: Architecture | None = None,
) -> tuple[Figure, ...]:
    """The figures of a model, in the order in which they are shown; levels nest.

    For sequences of `run.length` places, one at a time, with caches and activations in `dtype`.
    What a run cannot say has no value, and the reason in its note. Rounded to whole numbers.
    `architecture`: what `read(run)` gave, where it is there already.

    - `parameters`, `.active`, `.embedding`, `.output`, `.rest`: see figures_parameters.py;
    - `flops.forward` per token, with `.projections`, `.scores`, `.mlp`, `.experts`, `.output` and
      `.other`, and `flops.training`: see flops.py;
    - `kv_cache.token`, `kv_cache.sequence`, `state.sequence` where there is one: see kv_cache.py;
    - `saved.layer`, `saved.layers` per token: see saved.py;
    - `weights.LAYOUT.parameters`, `weights.LAYOUT.bytes` on the fullest rank: see rank_weights.py.
    """
    shares = Shares((architecture or read(run)).root, run.output_weight)
    return (
        *ParameterCounts(run, shares).figures(),
        *_flop_figures(run, shares),
        *_cache_figures(run, dtype),
        *saved_figures(run, dtype),
        *rank_figures(run, layouts),
    )


def _flop_figures(run: Run, shares: Shares) -> list[Figure]:
    at = f"at {run.length:,} places"
    labels = ("FLOPs per token, forward", "FLOPs per token, training")
    try:
        found = forward_flops(run, shares.of)
    except NotCountedError as error:
        names = zip(("flops.forward", "flops.training"), labels, strict=True)
        return [
            Figure(n, label, None, "FLOPs", note=f"{error}, which is not counted")
            for n, label in names
        ]
    total = sum(found.values(), Fraction())
    try:
        more = sum(forward_flops(run, shares.of, "labels").values(), Fraction())
    except NotCountedError as error:
        training = Figure("flops.training", labels[1], None, "FLOPs", note=f"{error} in training")
    else:
        note = f"{at}, further tokens predicted" if more else at
        training = Figure("flops.training", labels[1], round(3 * (total + more)), "FLOPs", 0, note)
    always = {"projections", "scores", "output", *(() if found["experts"] else ("mlp",))}
    parts = [
        Figure(f"flops.forward.{share}", _LABELS[share], round(found[share]), "FLOPs", 1)
        for share in SHARES
        if found[share] or share in always
    ]
    return [
        Figure("flops.forward", labels[0], round(total), "FLOPs", note=at),
        *parts,
        training,
    ]


def _cache_figures(run: Run, dtype: torch.dtype) -> list[Figure]:
    name = str(dtype).removeprefix("torch.")
    labels = ("key/value cache per token", "key/value cache of a sequence")
    try:
        token, sequence = bytes_per_token(run, dtype.itemsize), bytes_of_sequence(
            run, dtype.itemsize
        )
    except NothingSaysError as error:
        return [
            Figure("kv_cache.token", labels[0], None, "bytes", note=str(error)),
            Figure("kv_cache.sequence", labels[1], None, "bytes", note=str(error)),
        ]
    calls = [call for call in run.attention if call.phase == "train"]
    windows = {call.window for call in calls if call.window and call.window < run.length}
    limit = f", {_listed(windows)} in a window" if windows else ""
    return [
        Figure("kv_cache.token", labels[0], token, "bytes", note=name),
        Figure(
            "kv_cache.sequence",
            labels[1],
            sequence,
            "bytes",
            note=f"{name}, at {run.length:,} places{limit}",
        ),
        *_state_figures(run, dtype),
    ]


def _state_figures(run: Run, dtype: torch.dtype) -> list[Figure]:
    if not run.recurrences:
        return []
    name = str(dtype).removeprefix("torch.")
    return [
        Figure(
            "state.sequence",
            "recurrent state of a sequence",
            bytes_of_state(run, dtype.itemsize),
            "bytes",
            note=f"float32, convolutions' inputs {name}",
        )
    ]


def _listed(numbers: set[int]) -> str:
    return " and ".join(f"{number:,}" for number in sorted(numbers))
