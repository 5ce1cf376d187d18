"""Experts in a pipeline, at every schedule and shared out, equal one process that runs the data
parallel ranks' micro-batches one after another: loss, gradients, routers' losses and biases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pipeline_step import SHAPE, STEP, VOCABULARY, Layout, load, mesh_of, training
from torch import Tensor

from specc.runtime import Mesh, full_tensors, load_full_tensors
from specc.runtime.one_step import CLOSE, Case, make_batch, micro_batches, moved
from specc.runtime.pipeline_schedules import SCHEDULES
from specc.runtime.trainer import Trainer

PAGE = str(Path(__file__).with_name("moe_stack_page.py"))
MICRO_BATCHES = 4  # of all data parallel ranks together


def step(kind: int, layout: Layout, values: dict[str, Tensor]) -> dict[str, Tensor]:
    page, mesh = load(PAGE), mesh_of(layout)
    trainer = Trainer(page, page.config({"kind": kind}), mesh, training(layout))
    load_full_tensors(trainer.model, mesh, values)
    batch = make_batch(VOCABULARY, SHAPE, packed=False)
    own = list(micro_batches(batch, mesh, Case(accumulation=layout.accumulation)))
    found = {"loss": trainer.summed(trainer.gradients(STEP, own))}
    gradients = full_tensors(trainer.model, mesh, grads=True)
    found |= {f"gradient {name}": tensor for name, tensor in gradients.items()}
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.evaluate(own)  # counts nothing
    trainer.step(STEP, 0.0, own)
    found |= {f"router {name}": loss for name, loss in trainer.router_losses.items()}
    after = full_tensors(trainer.model, mesh)
    return found | {name: bias for name, bias in after.items() if name.endswith("expert_bias")}


def steps(kind: int, layouts: list[Layout], values: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    return [step(kind, layout, values) for layout in layouts]


@cache
def alone(kind: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    page, mesh = load(PAGE), Mesh.single()
    config = page.config({"kind": kind})
    values = moved(full_tensors(page.build(mesh, config), mesh))
    return values, step(kind, Layout(accumulation=MICRO_BATCHES), values)


LAYOUTS = {
    2: [Layout(pp=2, schedule=schedule) for schedule in SCHEDULES]
    + [Layout(pp=2, recompute="full")],
    4: [
        Layout(pp=2, accumulation=2),
        Layout(pp=2, accumulation=2, schedule="zbv", ep=2),
        Layout(pp=2, accumulation=2, zero=3, ep=2),
        Layout(pp=2, tp=2, ep=2, etp=1, schedule="interleaved"),
    ],
}


@pytest.mark.parametrize("size", LAYOUTS)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_experts_in_a_pipeline(ranks: Callable[..., list[Any]], kind: int, size: int) -> None:
    values, one = alone(kind)
    assert any(name.startswith("router") for name in one)
    for rank, found in enumerate(ranks(size, steps, kind, LAYOUTS[size], values)):
        for layout, got in zip(LAYOUTS[size], found, strict=True):
            assert got.keys() == one.keys(), (rank, layout)
            for name, expected in one.items():
                error = (got[name] - expected).abs().max()
                assert error <= CLOSE * expected.abs().max(), (rank, layout, name, error)
