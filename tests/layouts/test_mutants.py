"""Every mistake that changes a gradient is caught, at every layout where it does.

The core of `specc verify` is run under each mistake of ``mutants``: collectives' backwards removed
and doubled, sums left out, and of every parameter each reduction dropped or added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import mutants
import pytest
import torch
from layout_step import SHAPE, VOCABULARY, Alone, page_of
from mutants import patched
from torch import Tensor, nn

from specc.runtime import gradients, trainer
from specc.runtime.layouts import parse_layouts
from specc.runtime.mesh import Mesh
from specc.runtime.one_step import (
    CLOSE,
    Case,
    differences,
    make_batch,
    make_trainer,
    observed,
    one_step,
)
from specc.runtime.parameters import (
    ParameterRecord,
    canonical_parameters,
    load_full_tensors,
    local_tensor,
    whole_tensor,
)
from specc.runtime.sharded import as_sharded

# Of a mutant at a layout: whether any gradient is another number than without, and the largest
# difference from one process.
Found = dict[str, tuple[bool, float]]


def step_under(one: Alone, case: Case, names: list[str]) -> Found:
    """A step without a mistake, and under each."""
    stored = torch.load(one.file)
    page, mesh = page_of(one.page), case.degrees.mesh()

    def fresh() -> trainer.Trainer:
        made = make_trainer(page, page.config(), mesh, case)
        load_full_tensors(made.model, mesh, stored["values"])
        return made

    trained = fresh()
    batch = make_batch(VOCABULARY, SHAPE, packed=case.packed)
    expected = {k: v for k, v in stored["step"].items() if not k.startswith("initial")}
    right = observed(trained, batch, case)
    found: Found = {}
    for name in ("none", *names):
        trained.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if name == "none" else mutants.ALL[name]():
            got = observed(trained, batch, case)
        changed = got.keys() != right.keys() or any(
            not torch.equal(got[key], right[key]) for key in right if key.startswith("gradient")
        )
        found[name] = (changed, max(differences(got, expected, mesh, case, SHAPE).values()))
        if name in mutants.STICKY:
            trained = fresh()
    return found


LAYOUTS = [
    "tp2",
    "tp2 sp",
    "dp2 zero0",
    "dp2",
    "dp2 replicate2",
    "cp2:all_gather",
    "cp2:p2p",
    "cp2:a2a",
]


def test_mistakes(ranks: Callable[..., list[Any]], alone: Callable[..., Alone]) -> None:
    """On a page with every option, of packed documents.

    A mistake in what a layout does not use changes no gradient there, bit for bit. Each one does
    at some layout, so that none is missed for want of an effect.
    """
    one = alone("learned", packed=True)
    table: dict[str, dict[str, str]] = {name: {} for name in ("none", *mutants.ALL)}
    missed = []
    for layout in LAYOUTS:
        (degrees,) = parse_layouts(layout)
        case = Case(degrees, packed=True)
        results = ranks(degrees.size, step_under, one, case, list(mutants.ALL))
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


# ------------------------------------------------------- each parameter's reductions


def flips(one: Alone, case: Case) -> dict[str, float]:
    """Of every parameter and axis, the difference where the sum over it is dropped or added.

    The backward runs once; each time the gradients are as it left them.
    """
    stored = torch.load(one.file)
    page, mesh = page_of(one.page), case.degrees.mesh()
    right = trainer.sum_replicated_gradients
    found: dict[str, float] = {}

    def probe(model: nn.Module, mesh: Mesh) -> None:
        held = {
            name: None if p.grad is None else local_tensor(p.grad).clone()
            for name, _, p in canonical_parameters(model)
        }
        for name, record, parameter in canonical_parameters(model):
            for axis in (mesh.tp, mesh.dp_cp):
                # Shards of different sizes cannot be added up: such a mistake ends the run.
                if axis.size == 1 or (axis is mesh.dp_cp and _uneven(parameter)):
                    continue
                with _flipped(name, parameter, axis is mesh.tp) as what:
                    right(model, mesh)
                error = float("inf")
                if parameter.grad is not None:
                    whole = whole_tensor(parameter.grad, record, mesh)
                    expected = stored["step"][f"gradient {name}"]
                    error = float((whole - expected).abs().max() / expected.abs().max())
                found[f"{name}: sum over {axis.name} {what(record, parameter)}"] = error
                _restore(model, held)
        right(model, mesh)

    with (
        patched(trainer, "sum_replicated_gradients", probe),
        # Sums once a step: what it then knows of a parameter that no loss reached, is asked once.
        patched(gradients, "sharded_groups", lambda model: None),
    ):
        step = one_step(page, page.config(), mesh, case, SHAPE, stored["values"])
    assert max(differences(step, stored["step"], mesh, case, SHAPE).values()) <= CLOSE
    return found


@contextmanager
def _flipped(
    wanted: str, parameter: Tensor, over_tp: bool
) -> Iterator[Callable[[ParameterRecord, Tensor], str]]:
    all_records = gradients.canonical_parameters

    def records(model: nn.Module) -> Any:
        for name, record, p in all_records(model):
            if name == wanted and over_tp:
                record = replace(record, dim=0 if record.dim is None else None)
            yield name, record, p

    def sharded(tensor: Tensor) -> Any:
        if tensor is parameter and not over_tp:
            return None if as_sharded(tensor) is not None else tensor
        return as_sharded(tensor)

    def what(record: ParameterRecord, tensor: Tensor) -> str:
        there = record.dim is None if over_tp else as_sharded(tensor) is None
        return "dropped" if there else "added"

    with (
        patched(gradients, "canonical_parameters", records),
        patched(gradients, "as_sharded", sharded),
    ):
        yield what


def _uneven(parameter: Tensor) -> bool:
    return as_sharded(parameter) is not None and len(parameter) % 2 == 1


def _restore(model: nn.Module, held: dict[str, Tensor | None]) -> None:
    for name, _, parameter in canonical_parameters(model):
        before = held[name]
        if before is None:
            parameter.grad = None
            continue
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        local_tensor(parameter.grad).copy_(before)


@pytest.mark.parametrize(
    ("page", "layout"),
    [
        ("learned", "tp2"),
        ("learned", "tp2 sp"),
        ("learned", "dp2 zero0"),
        ("learned", "dp2"),
        ("learned", "cp2:p2p zero0"),
        ("learned", "cp2:a2a"),
        ("user", "tp2"),
        ("user", "tp2 sp"),
        ("user", "dp2"),
    ],
)
def test_each_parameters_reductions(
    ranks: Callable[..., list[Any]], alone: Callable[..., Alone], page: str, layout: str
) -> None:
    (degrees,) = parse_layouts(layout)
    one = alone(page)
    results = ranks(degrees.size, flips, one, Case(degrees))
    found = {name: max(result[name] for result in results) for name in results[0]}
    print(f"\n{page} at {layout}")
    for name, error in found.items():
        print(f"  {name:75}{error:>12.1e}")
    assert len(found) > 10
    assert {name for name, error in found.items() if not error > CLOSE} == set()
