"""One training step of a page at a layout, and how far it is from another's."""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.utils import counters

from specc.runtime import (
    Mesh,
    accumulate,
    clip_gradients,
    full_tensors,
    load_full_tensors,
    local_loss,
    materialize,
    parameter_table,
    set_dropout_step,
    shard,
    sum_replicated_gradients,
)
from specc.runtime.data import Layout
from specc.runtime.data_parallel import units

SEQUENCES, LENGTH, VOCABULARY, SEED = 8, 12, 131, 3
MAX_NORM = 0.1  # below any gradient's norm here


@dataclass(frozen=True)
class Case:
    """How a page is run. ``tp`` and dp, which is what tp leaves, make up the processes."""

    tp: int = 1
    sequence_parallel: bool = False
    fsdp: bool = False
    accumulation: int = 1
    compiled: bool = False

    def __str__(self) -> str:
        marks = ("sequence_parallel", "fsdp", "compiled")
        words = [mark for mark in marks if getattr(self, mark)]
        return " ".join([f"tp {self.tp}", *words, f"accumulation {self.accumulation}"])


@dataclass(frozen=True)
class Alone:
    """A page, and a file with the values it was given and the step it made, in one process."""

    text: str
    file: str


Results = dict[str, Tensor]
Differences = dict[str, float]


def load_page(text: str) -> Any:
    """The page as a module; one text is loaded once."""
    name = f"page_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text, f"<{name}>", "exec"), vars(module))
    return sys.modules[name]


def batch() -> tuple[Tensor, Tensor]:
    """Token ids and labels [8, 12]; sequences, and so ranks, differ in how many labels count."""
    generator = torch.Generator().manual_seed(7)
    ids, labels = torch.randint(VOCABULARY, (2, SEQUENCES, LENGTH), generator=generator)
    for row in range(SEQUENCES):
        labels[row, : 5 * row % LENGTH] = -100
    labels[6] = -100  # with one sequence a call, the mean over no label
    return ids, labels


def step(text: str, mesh: Mesh, case: Case, values: Results | None = None) -> Results:
    """Everything of one step, whole tensors by name; ``values`` replace the initial ones.

    The loss, the norm of the gradients before they are clipped, every initial value, gradient and
    clipped gradient. What forward returned is this rank's rows of the batch.
    """
    page = load_page(text)

    def wrap(model: nn.Module) -> None:
        if case.compiled:
            for unit in units(model):
                unit.compile(fullgraph=True, backend="aot_eager")
        if case.fsdp:
            shard(model, mesh, dtype=mesh.dtype)

    model = materialize(lambda: page.build_model(mesh, seed=SEED), mesh, seed=SEED, wrap=wrap)
    seen = _named("initial", full_tensors(model, mesh))
    if values is not None:
        load_full_tensors(model, mesh, values)
    if mesh.dtype != torch.float32 and not case.fsdp:
        _meet_rounded(model, mesh.dtype)
    ids, labels = batch()
    tokens = (labels != -100).sum()
    model.train()
    loss = torch.zeros(())
    outputs = []
    for last, rows in _micro_batches(mesh, case):
        set_dropout_step(model, seed=SEED, step=5, first_sequence=rows.start)
        accumulate(model, last=last)
        output = model(input_ids=ids[rows], labels=labels[rows])
        part = local_loss(output, labels[rows], page.LOSS, mesh, tokens)
        part.backward()
        loss += part.detach()
        outputs.append((output[-1] if isinstance(output, tuple) else output).detach())
    if case.compiled:
        assert counters["stats"]["unique_graphs"] > 0 and not counters["graph_break"]
    sum_replicated_gradients(model, mesh)
    if mesh.size > 1:
        dist.all_reduce(loss)
    seen |= {"loss": loss, "output": torch.cat(outputs)}
    seen |= _named("gradient", full_tensors(model, mesh, grads=True))
    seen["norm"] = clip_gradients(model, mesh, MAX_NORM)
    return seen | _named("clipped", full_tensors(model, mesh, grads=True))


def _meet_rounded(model: nn.Module, dtype: torch.dtype) -> None:
    """The gradients that one backward brings to a tied weight add up in ``dtype``.

    As they do under FSDP, where the weight itself is of that dtype.
    """
    for record in parameter_table(model).values():
        if record.tied_to is not None:
            weight = model.get_parameter(record.tied_to)
            weight.register_hook(lambda gradient: gradient.to(dtype).to(gradient.dtype))


def rows_of(mesh: Mesh, case: Case) -> list[int]:
    """The rows of the batch that this rank sees, in its order."""
    return [r for _, rows in _micro_batches(mesh, case) for r in range(rows.start, rows.stop)]


def _micro_batches(mesh: Mesh, case: Case) -> Iterator[tuple[bool, slice]]:
    size = SEQUENCES // mesh.dp.size // case.accumulation
    firsts = list(Layout(size, case.accumulation, mesh.dp.size, mesh.dp.rank).firsts())
    for turn, first in enumerate(firsts):
        yield turn == len(firsts) - 1, slice(first, first + size)


def _named(kind: str, tensors: Results) -> Results:
    return {f"{kind} {name}": tensor for name, tensor in tensors.items()}


def moved(values: Results) -> Results:
    """Values off their initial ones: zeros and ones hide mistakes."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in values.items()
    }


def differences(got: Results, expected: Results, rows: list[int]) -> Differences:
    """max |a - b| / max |b| of each tensor; infinite where they cannot be compared.

    Initial values differ by infinity or not at all. A tensor of zeros compares with nothing.
    """
    names = got.keys() | expected.keys()
    found = dict.fromkeys(sorted(names), float("inf"))
    for name in got.keys() & expected.keys():
        a, b = got[name], expected[name]
        if name == "output":
            b = b[rows]
        if a.shape != b.shape or a.dtype != b.dtype:
            continue
        if name.startswith("initial"):
            found[name] = 0.0 if torch.equal(a, b) else float("inf")
        elif b.abs().max() > 0:
            error = float((a - b).abs().max() / b.abs().max())
            found[name] = error if error == error else float("inf")
    return found


def run(text: str, case: Case, expected_at: str, dtype: torch.dtype) -> Differences:
    """Runs a page in one of many processes; its differences from the step stored in a file."""
    expected = torch.load(expected_at)
    values, results = expected["values"], expected["results"]
    mesh = Mesh.launch(tp=case.tp, sequence_parallel=case.sequence_parallel, dtype=dtype)
    return differences(step(text, mesh, case, values), results, rows_of(mesh, case))


def run_all(
    text: str, cases: list[Case], expected_at: str, dtype: torch.dtype = torch.float32
) -> dict[str, Differences]:
    """Several cases after one another: one call to the processes, one word of each case."""
    return {str(case): run(text, case, expected_at, dtype) for case in cases}


def assert_within(results: list[dict[str, Differences]], limit: float) -> None:
    """Of each rank's results, as ``run_all`` returns them, no difference is above the limit."""
    wrong = [
        f"rank {rank}, {case}: {name} differs by {difference:.1e}"
        for rank, result in enumerate(results)
        for case, found in result.items()
        for name, difference in found.items()
        if difference > limit
    ]
    assert not wrong, f"{len(wrong)} tensors:\n" + "\n".join(wrong[:40])
