"""Every mistake in what experts and pipelines exchange and count is caught where it has an effect.

As test_mutants.py, on a page with experts: gradients, the routers' losses, counts and biases.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import expert_mutants
import torch
from layout_step import page_of
from torch import Tensor

from specc.runtime.layouts import parse_layouts
from specc.runtime.mesh import Mesh
from specc.runtime.one_step import (
    CLOSE,
    Case,
    Shape,
    alone,
    differences,
    make_batch,
    make_trainer,
    observed,
)
from specc.runtime.parameters import load_full_tensors

PAGE = str(Path(__file__).with_name("moe_stack_page.py"))
FIELDS = {"kind": 3, "num_layers": 2}
SHAPE = Shape(sequences=4, length=8)
LAYOUTS = {  # and how tokens reach their experts
    "dp2 ep2 zero0": "allgather",
    "dp2 zero0": "alltoall",
    "tp2 ep2 etp1": "alltoall",
    "tp2 sp": "alltoall",
    "pp2": "alltoall",
}
MICRO_BATCHES = 2  # of all ranks of dp
Stored = tuple[dict[str, Tensor], dict[str, Tensor]]


def one_process() -> Stored:
    """The values and the step."""
    page, case = page_of(PAGE), Case(accumulation=MICRO_BATCHES)
    return alone(page, page.config(FIELDS), case, SHAPE, Mesh.single())


def step_under(stored: Stored, layout: str) -> dict[str, tuple[bool, float]]:
    """A step without a mistake, and under each: whether it is another, and how far it is from one
    process."""
    values, expected = stored
    (degrees,) = parse_layouts(layout)
    case = Case(degrees, accumulation=MICRO_BATCHES // degrees.dp)
    mesh = degrees.mesh(moe_token_dispatcher_type=LAYOUTS[layout])
    page = page_of(PAGE)
    config = page.config(FIELDS)
    expected = {name: t for name, t in expected.items() if not name.startswith("initial")}
    batch = make_batch(config.vocab_size, SHAPE, packed=False)
    trainer = make_trainer(page, config, mesh, case)
    right: dict[str, Tensor] = {}
    found = {}
    for name in ("none", *expert_mutants.ALL):
        fresh = name in expert_mutants.BUILT
        with nullcontext() if name == "none" else expert_mutants.ALL[name]():
            taken = make_trainer(page, config, mesh, case) if fresh else trainer
            load_full_tensors(taken.model, mesh, values)  # a step moves biases
            taken.optimizer.zero_grad(set_to_none=True)
            got = observed(taken, batch, case)
        right = right or got
        changed = got.keys() != right.keys() or any(
            not torch.equal(got[key], right[key]) for key in right if key != "output"
        )
        found[name] = (changed, max(differences(got, expected, mesh, case, SHAPE).values()))
    return found


def test_mistakes(ranks: Callable[..., list[Any]]) -> None:
    """A mistake in what a layout does not use changes nothing there, bit for bit."""
    table: dict[str, dict[str, str]] = {name: {} for name in ("none", *expert_mutants.ALL)}
    missed = []
    stored = one_process()
    for layout in LAYOUTS:
        results = ranks(2, step_under, stored, layout)
        for name, column in table.items():
            changed = any(result[name][0] for result in results)
            largest = max(result[name][1] for result in results)
            column[layout] = f"{largest:.0e}" if changed else "-"
            if changed != (largest > CLOSE):
                missed.append((name, layout, changed, largest))
    print("\n" + " " * 41 + " ".join(f"{layout:>14}" for layout in LAYOUTS))
    for name, column in table.items():
        print(f"{name:41}" + " ".join(f"{column[layout]:>14}" for layout in LAYOUTS))
    assert not missed
    assert set(table.pop("none").values()) == {"-"}
    assert [name for name, column in table.items() if set(column.values()) == {"-"}] == []
