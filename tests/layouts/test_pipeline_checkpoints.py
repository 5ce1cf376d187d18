"""A checkpoint of a pipeline, or of experts dealt out, is one of the model: it moves to any layout
bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from moe_pages import compiled
from pipeline_pages import written
from pipeline_step import SHAPE, STEP, VOCABULARY, Layout, mesh_of, trainer_of
from torch import Tensor

from specc.runtime import checkpoint, full_tensors, load_full_tensors
from specc.runtime.checkpoint_index import SECTIONS
from specc.runtime.checkpoint_read import Stored
from specc.runtime.one_step import Case, make_batch, micro_batches, moved
from specc.runtime.parameters import LocalPart
from specc.runtime.trainer import Trainer

Ranks = Callable[..., list[Any]]
ONE = Layout()
CHAINS = {
    ("gpt2", 2): [Layout(pp=2), Layout(pp=2, schedule="zbv")],
    ("gpt2", 4): [
        Layout(pp=4),
        Layout(pp=2, tp=2, schedule="interleaved"),
        Layout(pp=2, zero=3),
        Layout(pp=2, dp_replicate=2, schedule="dualpipev"),
    ],
    ("experts", 4): [Layout(ep=4, accumulation=2), Layout(tp=2, ep=2), Layout(pp=4)],
}


@dataclass(frozen=True)
class _Facts:
    step: int = 1

    def json(self) -> str:
        return "{}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tied one, of which two stages hold the table, and one whose routers have biases."""
    folder = tmp_path_factory.mktemp("pages")
    experts = folder / "experts.py"
    experts.write_text(compiled("sigmoid"))
    return {"gpt2": str(written(folder, "gpt2")), "experts": str(experts)}


def _trained(file: str, layout: Layout, folder: Path) -> None:
    """Take a step and save."""
    trainer = trainer_of(file, layout, mesh_of(layout))
    batch = make_batch(VOCABULARY, SHAPE, packed=False)
    own = list(micro_batches(batch, trainer.mesh, Case(accumulation=layout.accumulation)))
    trainer.step(STEP, 1e-2, own)
    _save(trainer, folder)


def _save(trainer: Trainer, folder: Path) -> None:
    saver = checkpoint.Saver(folder, trainer.mesh)
    saver.save(trainer.model, trainer.optimizer, _Facts())
    saver.finish()


def _moved(file: str, layout: Layout, source: Path, target: Path) -> None:
    """Load, and save again."""
    trainer = trainer_of(file, layout, mesh_of(layout))
    found = checkpoint.find(source)
    checkpoint.load_model(found, trainer.model, trainer.mesh)
    checkpoint.load_optimizer(found, trainer.model, trainer.optimizer, trainer.mesh, 1)
    _save(trainer, target)


@cache
def _read(folder: Path) -> dict[str, Tensor]:
    found = {}
    for section in SECTIONS:
        stored = Stored(checkpoint.find(folder), section)
        for name, saved in stored.tensors.items():
            whole = LocalPart((0,) * len(saved.shape), tuple(saved.shape))
            found[name] = stored.read(name, whole)
    return found


def _same(a: Path, b: Path) -> bool:
    first, second = _read(a), _read(b)
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


@pytest.mark.parametrize(("name", "size"), CHAINS)
def test_from_a_layout_and_into_one(
    ranks: Ranks, pages: dict[str, str], tmp_path: Path, name: str, size: int
) -> None:
    """Parameters and optimizer's states: from each layout into one process and on into the next."""
    page = pages[name]
    _trained(page, ONE, tmp_path / "one")
    before = tmp_path / "one"
    for number, layout in enumerate(CHAINS[name, size]):
        into = tmp_path / f"into {number}"
        ranks(size, _moved, page, layout, before, into)
        assert _same(before, into), layout
        trained, back = tmp_path / f"trained {number}", tmp_path / f"back {number}"
        ranks(size, _trained, page, layout, trained)
        _moved(page, ONE, trained, back)
        assert _same(trained, back), layout
        assert not _same(before, trained) or number  # another sum's rounding
        before = trained
    saved = _read(before)
    assert name != "experts" or saved["decoder.layers.3.mlp.router.expert_bias"].any()


def _whole(file: str, layout: Layout) -> dict[str, Tensor]:
    """Whole tensors of all stages on every rank, put in and read back."""
    trainer = trainer_of(file, layout, mesh_of(layout))
    values = moved(full_tensors(trainer.model, trainer.mesh))
    load_full_tensors(trainer.model, trainer.mesh, values)
    found = full_tensors(trainer.model, trainer.mesh)
    assert all(torch.equal(found[name], values[name]) for name in values)
    with pytest.raises(KeyError, match="missing"):
        load_full_tensors(trainer.model, trainer.mesh, {})
    return found


@pytest.mark.parametrize("layout", [Layout(pp=2), Layout(pp=2, schedule="zbv")])
def test_whole_tensors_are_those_of_all_stages(
    ranks: Ranks, pages: dict[str, str], layout: Layout
) -> None:
    page = pages["gpt2"]
    one = _whole(page, ONE)
    for found in ranks(2, _whole, page, layout):
        assert list(found) == list(one)
        assert all(torch.equal(found[name], one[name]) for name in one)
