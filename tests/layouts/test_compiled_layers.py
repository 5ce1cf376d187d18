"""Layers compiled in place: one graph for all that are alike, no break, and the numbers of one
process without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from layout_step import SHAPE, Alone, _compiled_quickly, assert_within, page_of
from torch._dynamo.utils import counters

from specc.runtime.layouts import parse_layouts
from specc.runtime.one_step import SEED, Case, differences, make_batch, observed, vocabulary
from specc.runtime.parameters import load_full_tensors
from specc.runtime.recompute import Recompute
from specc.runtime.trainer import Trainer, Training

NONE, FULL, BY_OPERATION = Recompute(), Recompute("full"), Recompute("selective")
BY_MODULE = Recompute("selective", modules=("layernorm", "mlp", "core_attn"))


def run(
    one: Alone, layouts: str, choice: Recompute, graphs: int, quickly: bool = True
) -> Mapping[str, Mapping[str, float]]:
    """A page's step at layouts whose layers compile to the same graphs; the differences of each.

    Not ``quickly``: by inductor, the head and the loss too.
    """
    torch._dynamo.reset()
    counters.clear()
    found = {}
    page, expected = page_of(one.page), torch.load(one.file)
    for degrees in parse_layouts(layouts):
        case = Case(degrees, compiled=True)
        mesh = degrees.mesh(recompute_core_attn=choice.core_attention, compiled=not quickly)
        how = Training(
            compile=True, fsdp=degrees.stage > 0, zero=max(1, degrees.stage), recompute=choice
        )
        with _compiled_quickly() if quickly else nullcontext():
            trainer = Trainer(page, page.config(), mesh, how, seed=SEED)
            load_full_tensors(trainer.model, mesh, expected["values"])
            batch = make_batch(vocabulary(trainer.model, page.config()), SHAPE, packed=False)
            got = observed(trainer, batch, case)
        step = {n: t for n, t in expected["step"].items() if not n.startswith("initial")}
        found[str(case)] = differences(got, step, mesh, case, SHAPE)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == graphs
    return found


CASES = [
    ("llama", "one process", NONE),
    ("llama", "tp2", NONE),
    ("llama", "tp2 sp", NONE),
    ("llama", "cp2", NONE),
    ("llama", "cp2:p2p", NONE),
    ("llama", "cp2:a2a", NONE),
    ("llama", "dp2 zero1, dp2 zero2, dp2 zero3, dp2 replicate2 zero3", NONE),
    ("llama", "pp2", NONE),
    ("llama", "pp2 dp2 zero3", FULL),
    ("learned", "tp2 sp", NONE),
    ("llama", "tp2 sp", FULL),
    ("llama", "tp2 sp", BY_OPERATION),
    ("llama", "cp2", BY_OPERATION),
    ("llama", "dp2 zero2, dp2 zero3", BY_OPERATION),
    ("llama", "dp2 zero1, dp2 replicate2 zero2", FULL),
    ("learned", "tp2 sp", BY_MODULE),
]


@pytest.mark.parametrize(("page", "layouts", "choice"), CASES, ids=str)
def test_page(
    ranks: Callable[..., list[Any]],
    alone: Callable[..., Alone],
    page: str,
    layouts: str,
    choice: Recompute,
) -> None:
    size = parse_layouts(layouts)[0].size
    graphs = {"llama": 1, "learned": 2}[page]  # two kinds of layers, by their window
    assert_within(ranks(size, run, alone(page), layouts, choice, graphs), 1e-5)


@pytest.mark.parametrize(
    ("layout", "choice"), [("one process", BY_OPERATION), ("tp2 sp", NONE)], ids=str
)
def test_by_inductor(
    ranks: Callable[..., list[Any]], alone: Callable[..., Alone], layout: str, choice: Recompute
) -> None:
    """Half a minute each: C++ is compiled."""
    size = parse_layouts(layout)[0].size
    graphs = 2  # of the layers, and of the head and the loss
    found = ranks(size, run, alone("llama"), layout, choice, graphs, False, timeout=400)
    assert_within(found, 1e-5)
