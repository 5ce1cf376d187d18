"""Layers with experts that are compiled, or computed again in the backward, in a pipeline too: the
numbers of one process, and each token counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from layout_step import _compiled_quickly, page_of
from moe_matrix import SHAPE, alone_file, write_alone
from moe_pages import compiled
from torch._dynamo.utils import counters

from specc.runtime.layouts import parse_layouts
from specc.runtime.one_step import CLOSE, SEED, Case, differences, make_batch, observed
from specc.runtime.parameters import load_full_tensors
from specc.runtime.recompute import Recompute
from specc.runtime.trainer import Trainer, Training
from specc.runtime.verify_worker import reference

FULL, BY_OPERATION = Recompute("full"), Recompute("selective")
BY_MODULE = Recompute("selective", modules=("layernorm", "mlp"))
CASES = [  # the layout, micro-batches of a rank, what is computed again, whether it is compiled
    ("tp2 ep2 etp1", 2, FULL, False),
    ("tp2 sp ep2 etp1", 2, BY_OPERATION, False),
    ("dp2 ep2 zero2", 2, BY_MODULE, False),
    ("dp2 ep2 zero3", 2, BY_OPERATION, False),
    ("pp2", 4, FULL, False),
    ("pp2", 4, Recompute(), True),
    ("tp2 ep2 etp1", 1, FULL, True),
    ("dp2 ep2 zero2", 2, BY_OPERATION, True),
]


def step(file: Path, folder: Path, case: Case, choice: Recompute) -> dict[str, float]:
    page, mesh = page_of(str(file)), case.degrees.mesh()
    expected = torch.load(alone_file(folder, file, reference(case, routed=True)))
    how = Training(
        accumulation=case.accumulation,
        compile=case.compiled,
        fsdp=case.degrees.stage > 0,
        zero=max(1, case.degrees.stage),
        recompute=choice,
        schedule=case.degrees.schedule,
    )
    torch._dynamo.reset()
    counters.clear()
    with _compiled_quickly():
        trainer = Trainer(page, page.config(), mesh, how, seed=SEED)
        load_full_tensors(trainer.model, mesh, expected["values"])
        got = observed(trainer, make_batch(131, SHAPE, packed=False), case)
    if case.compiled:
        # Layers are alike: a graph for each set of inputs with a gradient. Under FSDP a layer is
        # in parts, and experts have one graph for the first number of rows and one for any.
        most = 6 if case.degrees.stage else 2
        assert 1 <= counters["stats"]["unique_graphs"] <= most and not counters["graph_break"]
    one = {name: t for name, t in expected["step"].items() if not name.startswith("initial")}
    return differences(got, one, mesh, case, SHAPE)


@pytest.mark.parametrize(("layout", "parts", "choice", "compile"), CASES, ids=str)
def test_equals_one_process(
    ranks: Callable[..., list[Any]],
    tmp_path_factory: pytest.TempPathFactory,
    layout: str,
    parts: int,
    choice: Recompute,
    compile: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    file = folder / "groups_capacity.py"
    file.write_text(compiled("groups_capacity"))
    (degrees,) = parse_layouts(layout)
    case = Case(degrees, parts, compiled=compile)
    write_alone(file, folder, reference(case, routed=True))
    for found in ranks(degrees.size, step, file, folder, case, choice):
        assert any(name.startswith("count") for name in found)
        assert {name: d for name, d in found.items() if not d <= CLOSE} == {}
