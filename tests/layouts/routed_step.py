"""A step of a page with routers: what its ranks have after it, whole, and what one process has."""

from __future__ import annotations

from typing import Any

from pipeline_step import SHAPE, STEP, VOCABULARY, Layout, load, mesh_of, training
from torch import Tensor

from specc.runtime import Mesh, full_tensors, load_full_tensors
from specc.runtime.one_step import CLOSE, Case, make_batch, micro_batches, moved
from specc.runtime.trainer import Trainer

MICRO_BATCHES = 4  # of all data parallel ranks together


def step(
    file: str, changes: dict[str, Any], layout: Layout, values: dict[str, Tensor]
) -> dict[str, Tensor]:
    """ "loss", "gradient" NAME, "router" NAME (a loss of the routers) and the routers' biases."""
    page, mesh = load(file), mesh_of(layout)
    trainer = Trainer(page, page.config(changes), mesh, training(layout))
    load_full_tensors(trainer.model, mesh, values)
    batch = make_batch(VOCABULARY, SHAPE, packed=layout.packed)
    case = Case(accumulation=layout.accumulation, packed=layout.packed)
    own = list(micro_batches(batch, mesh, case))
    found = {"loss": trainer.summed(trainer.gradients(STEP, own))}
    gradients = full_tensors(trainer.model, mesh, grads=True)
    found |= {f"gradient {name}": tensor for name, tensor in gradients.items()}
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.evaluate(own)  # counts nothing
    trainer.step(STEP, 0.0, own)
    found |= {f"router {name}": loss for name, loss in trainer.attached_losses.items()}
    after = full_tensors(trainer.model, mesh)
    return found | {name: bias for name, bias in after.items() if name.endswith("expert_bias")}


def steps(
    file: str, changes: dict[str, Any], layouts: list[Layout], values: dict[str, Tensor]
) -> list[dict[str, Tensor]]:
    return [step(file, changes, layout, values) for layout in layouts]


def alone(
    file: str, changes: dict[str, Any], *, packed: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values of all parameters, and the step of one process that runs all micro-batches."""
    page, mesh = load(file), Mesh.single()
    values = moved(full_tensors(page.build(mesh, page.config(changes)), mesh))
    layout = Layout(accumulation=MICRO_BATCHES, packed=packed)
    return values, step(file, changes, layout, values)


def assert_equal(got: dict[str, Tensor], one: dict[str, Tensor], *where: object) -> None:
    assert got.keys() == one.keys(), where
    for name, expected in one.items():
        error = (got[name] - expected).abs().max()
        assert error <= CLOSE * expected.abs().max(), (*where, name, error)
