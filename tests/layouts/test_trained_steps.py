"""Steps of the trainer itself on a user's page, and on the seed's: what a run would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from layout_step import SEQUENCES, Alone, batch

from specc.runtime import Mesh
from specc.runtime.data import Layout, MicroBatch
from specc.runtime.page import load_page
from specc.runtime.trainer import Trainer

ACCUMULATION = 2
STEPS = 4


def losses(page: str, mesh: Mesh) -> list[tuple[float, float]]:
    """The loss and the gradients' norm of each step, on one batch over and over."""
    loaded = load_page(page)
    trainer = Trainer(loaded, loaded.config(), mesh, accumulation=ACCUMULATION)
    size = SEQUENCES // ACCUMULATION // mesh.dp.size
    ids, labels = batch()
    batches = []
    for first in Layout(size, ACCUMULATION, mesh.dp.size, mesh.dp.rank).firsts():
        rows = slice(first, first + size)
        batches.append(MicroBatch(ids[rows], labels[rows], first))
    found = []
    for number in range(STEPS):
        loss, norm = trainer.step(number, 3e-3, batches)
        found.append((float(trainer.summed(loss)), float(norm)))
    return found


def launched_losses(page: str, tp: int, sp: bool, dtype: torch.dtype) -> list[tuple[float, float]]:
    return losses(page, Mesh.launch(tp=tp, sequence_parallel=sp, dtype=dtype))


@pytest.mark.parametrize(("size", "tp", "sp"), [(2, 1, False), (2, 2, True), (4, 2, False)])
@pytest.mark.parametrize("page", ["user", "seed"])
def test_losses_are_those_of_one_process(
    ranks: Callable[..., list[Any]],
    alone: Callable[..., Alone],
    tmp_path: Path,
    page: str,
    size: int,
    tp: int,
    sp: bool,
) -> None:
    file = tmp_path / "page.py"
    file.write_text(alone(page).text)
    expected = losses(str(file), Mesh.single())
    assert expected[-1][0] < 0.9 * expected[0][0]
    for dtype, close in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        for found in ranks(size, launched_losses, str(file), tp, sp, dtype):
            for step, (got, want) in enumerate(zip(found, expected, strict=True)):
                # Adam turns the rounding of a gradient near zero into a whole step of its sign.
                assert got == pytest.approx(want, rel=close), (dtype, step)
