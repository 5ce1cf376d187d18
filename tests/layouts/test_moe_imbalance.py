"""Loads as uneven as can be, at ep 2 and 4: all tokens to the experts of one rank, none for the
others, one token in all. Nothing hangs or is lost: the step is that of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from layout_step import page_of
from moe_matrix import DISPATCHERS
from moe_pages import SIZES, compiled
from torch import Tensor

from specc.runtime.layouts import parse_layouts
from specc.runtime.mesh import Mesh
from specc.runtime.one_step import CLOSE, Case, Shape, alone, differences, one_step
from specc.runtime.verify_worker import reference

EXPERTS, LAYERS = SIZES["num_moe_experts"], 2
LOADED = (6, 7)  # of the last rank at ep 2 and 4
MANY, ONE = Shape(sequences=4, length=6), Shape(sequences=1, length=1)


@dataclass(frozen=True)
class Load:
    """A layout, a dispatcher, a batch, and whether all tokens go to the experts ``LOADED``."""

    layout: str
    dispatcher: str
    shape: Shape
    uneven: bool = True

    @property
    def case(self) -> Case:
        return Case(parse_layouts(self.layout)[0])


LAYOUTS = {
    MANY: ("dp2 ep2", "tp2 ep2 etp1", "dp4 ep4", "tp2 sp dp2 ep4 etp1", "tp2 dp2 ep2"),
    ONE: ("tp2 ep2 etp1", "tp4 ep4 etp1", "tp4 ep2 etp2", "tp2 ep2 etp1"),
}
LOADS = [
    Load(layout, DISPATCHERS[number % 2], shape, uneven)
    for shape, layouts in LAYOUTS.items()
    for number, layout in enumerate(layouts)
    for uneven in ((True, False) if shape == ONE else (True,))
]


@cache
def step_alone(
    file: Path, case: Case, shape: Shape, uneven: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The values and the step of one process."""
    page, mesh = page_of(str(file)), Mesh.single()
    values, step = alone(page, page.config({"num_layers": LAYERS}), case, shape, mesh)
    if uneven:
        for layer in range(LAYERS):
            # Scores are between 0 and 1.
            bias = torch.zeros(EXPERTS).index_fill(0, torch.tensor(LOADED), 5.0)
            values[f"decoder.layers.{layer}.mlp.router.expert_bias"] = bias
        step = one_step(page, page.config({"num_layers": LAYERS}), mesh, case, shape, values)
    return values, step


def compare(file: Path, loads: list[Load], given: list[Any]) -> list[dict[str, float]]:
    page, found = page_of(str(file)), []
    for load, (values, expected) in zip(loads, given, strict=True):
        mesh = load.case.degrees.mesh(moe_token_dispatcher_type=load.dispatcher)
        got = one_step(
            page, page.config({"num_layers": LAYERS}), mesh, load.case, load.shape, values
        )
        found.append(differences(got, expected, mesh, load.case, load.shape))
    return found


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("kind", ["sigmoid", "padded"])
def test_uneven_loads(
    ranks: Callable[..., list[Any]], tmp_path: Path, kind: str, processes: int
) -> None:
    file = tmp_path / f"{kind}.py"
    file.write_text(compiled(kind))
    loads = [load for load in LOADS if load.case.degrees.size == processes]
    given = [
        step_alone(file, reference(load.case, routed=True), load.shape, load.uneven)
        for load in loads
    ]
    for load, (_, step) in zip(loads, given, strict=True):
        counts = step["count decoder.layers.0.mlp.router"]
        tokens = load.shape.sequences * load.shape.length
        if load.uneven and kind == "sigmoid":
            assert counts.tolist() == [tokens if e in LOADED else 0 for e in range(EXPERTS)]
        else:
            assert 0 < counts.sum() <= 2 * tokens
    for results in ranks(processes, compare, file, loads, given):
        for load, found in zip(loads, results, strict=True):
            # Of experts without a token a gradient is zero in one process too: nothing to compare.
            assert [name for name, d in found.items() if d > CLOSE] == [], load
