"""Steps of the trainer itself on a user's page, and on the seed's: what a run would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from layout_step import SHAPE, VOCABULARY, page_of

from specc.runtime import Mesh
from specc.runtime.layouts import parse_layouts
from specc.runtime.one_step import Case, make_batch, micro_batches
from specc.runtime.trainer import Trainer, Training

ACCUMULATION = 2
STEPS = 4


def losses(file: str, mesh: Mesh) -> list[tuple[float, float]]:
    """The loss and the gradients' norm of each step, on one batch over and over."""
    page, case = page_of(file), Case(accumulation=ACCUMULATION)
    trainer = Trainer(page, page.config(), mesh, Training(accumulation=ACCUMULATION))
    batches = list(micro_batches(make_batch(VOCABULARY, SHAPE, packed=False), mesh, case))
    found = []
    for number in range(STEPS):
        loss, norm = trainer.step(number, 3e-3, batches)
        found.append((float(trainer.summed(loss)), float(norm)))
    return found


def launched_losses(file: str, layout: str, dtype: torch.dtype) -> list[tuple[float, float]]:
    (degrees,) = parse_layouts(layout)
    return losses(file, degrees.mesh(dtype=dtype))


@pytest.mark.parametrize(("size", "layout"), [(2, "dp2"), (2, "tp2 sp"), (4, "tp2 dp2")])
@pytest.mark.parametrize("page", ["user", "seed"])
def test_losses_are_those_of_one_process(
    ranks: Callable[..., list[Any]],
    page_file: Callable[[str], Path],
    page: str,
    size: int,
    layout: str,
) -> None:
    file = str(page_file(page))
    expected = losses(file, Mesh.single())
    assert expected[-1][0] < 0.9 * expected[0][0]
    for dtype, close in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        for found in ranks(size, launched_losses, file, layout, dtype):
            for step, (got, want) in enumerate(zip(found, expected, strict=True)):
                # Adam turns the rounding of a gradient near zero into a whole step of its sign.
                assert got == pytest.approx(want, rel=close), (dtype, step)
