"""What layers keep for the backward, as figures."""

from __future__ import annotations

import torch
from torch import nn

from specc.runtime import Mesh

from ..meta_kernels import without_dynamo
from ..validate.failure import reason
from ..validate.inputs import signature
from .figure import Figure
from .run import Run, build, opened_page
from .saved import Saved, saved_activations

_LABELS = ("saved activations of a layer per token", "of all layers")
_HALF = (torch.bfloat16, torch.float16)


def saved_figures(run: Run, dtype: torch.dtype) -> list[Figure]:
    """`saved.layer`, the mean where layers differ, and `saved.layers`, what they share included.

    Measured for one sequence of `run.length` places and divided by them, since what a layer keeps
    may grow faster than its length (scores that stay in memory).
    """
    name = str(dtype).removeprefix("torch.")
    if dtype not in _HALF:
        return _none(f"measured with a GPU's kernels for bfloat16 and float16, not for {name}")
    try:
        saved = measured(run, dtype)
    except Exception as error:  # of the author's own code, which ran in float32
        return _none(f"the forward does not run in {name}: {reason(error)}")
    if not saved.layers:
        return _none("no layers: the model has no `nn.ModuleList` of modules with parameters")
    if saved.dtype != dtype:
        ran = str(saved.dtype).removeprefix("torch.")
        return _none(f"its layers run in {ran} where its weights are {name}")
    note = f"{name}, at {run.length:,} places"
    mean = sum(saved.layers) / len(saved.layers)
    if len(set(saved.layers)) > 1:
        least, most = (round(n / run.length) for n in (min(saved.layers), max(saved.layers)))
        note += f"; the mean of {least:,} to {most:,}"
    return [
        Figure("saved.layer", _LABELS[0], round(mean / run.length), "bytes", note=note),
        Figure("saved.layers", _LABELS[1], round(saved.total / run.length), "bytes", 1),
    ]


@without_dynamo()
def measured(run: Run, dtype: torch.dtype) -> Saved:
    """Bytes of one forward in `dtype` over one sequence."""
    with opened_page(run.page_text, run.name) as page:
        model, _ = build(page, run.name, Mesh.single(dtype=dtype))
        for parameter in model.parameters():  # what FSDP gathers is in this dtype
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
        return saved_activations(model, lambda model: _forward(model, run), run.stands_for)


def _forward(model: nn.Module, run: Run) -> object:
    """With labels where the model, or a layer of it, runs with them alone."""
    ids = torch.zeros((1, run.length), dtype=torch.int64, device="meta")
    labelled = signature(model).get("labels") is True or any(
        run.needs_labels(path) for path in run.calls.get("labels", {})
    )
    return model(input_ids=ids, **({"labels": ids} if labelled else {}))


def _none(why: str) -> list[Figure]:
    names = ("saved.layer", "saved.layers")
    return [
        Figure(name, label, None, "bytes", level, why)
        for level, (name, label) in enumerate(zip(names, _LABELS, strict=True))
    ]
