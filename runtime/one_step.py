"""One training step of a page at a layout, and how far it is from the same step in one process.

What `specc verify` and the tests of layouts run, by the trainer itself: the batch has ignored
labels, no two ranks the same number, and parameters are off their initial values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .data import IGNORED, MicroBatch
from .gradients import clip_gradients
from .layouts import Degrees
from .mesh import Mesh
from .moe_router import expert_counts, finish_step
from .page import LOSSES, Page
from .parameters import full_tensors, load_full_tensors
from .positions import own_places
from .refusal import Refusal
from .trainer import Trainer, Training

SEED, STEP = 3, 5
MAX_NORM = 0.1  # below the norm of any gradient here
CLOSE = 1e-5  # float32 rounding, relative to a tensor's largest entry

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """How a step is run: at which layout, in how many micro-batches on each rank, over sequences of
    several documents or of one, with layers compiled or not.
    """

    degrees: Degrees = Degrees()
    accumulation: int = 1
    packed: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        marks = [str(self.degrees)]
        if self.accumulation > 1:
            marks.append(f"accumulation {self.accumulation}")
        if self.packed:
            marks.append("packed")
        if self.compiled:
            marks.append("compiled")
        return ", ".join(marks)


@dataclass(frozen=True)
class Shape:
    """Of a step's batch. Every layout has to cut it in equal parts, and each part in micro-batches;
    of 7 sequences or more, one has no label that counts.
    """

    sequences: int = 8
    length: int = 16


@dataclass(frozen=True)
class Batch:
    """A step's whole sequences: ``ids`` and ``labels`` [b, s], and where documents begin."""

    ids: Tensor
    labels: Tensor
    starts: Tensor | None


def make_batch(vocabulary: int, shape: Shape, *, packed: bool) -> Batch:
    """Always the same. Sequences differ in how many labels count, documents in their first token.

    ``packed``: each sequence holds documents of its own lengths, of 1 token up.

    Two documents that begin alike have tokens with the same numbers to the last bit. Another layout
    may round them apart, and drop the other one where an expert is full.
    """
    b, s = shape.sequences, shape.length
    generator = torch.Generator().manual_seed(7)
    ids, labels = torch.randint(vocabulary, (2, b, s), generator=generator)
    for row in range(b):
        labels[row, : 5 * row % s] = IGNORED
    labels[6:7] = IGNORED  # with one sequence a call, the mean over no label
    begins = torch.rand((b, s), generator=generator) < (0.3 if packed else 0.0)
    begins[:, 0] = True
    ids[begins] = torch.arange(int(begins.sum())) % vocabulary
    if not packed:
        return Batch(ids, labels, None)
    starts = torch.where(begins, torch.arange(s), 0).cummax(1).values
    return Batch(ids, labels, starts)


def make_trainer(page: Page, config: Any, mesh: Mesh, case: Case) -> Trainer:
    """The page's model at the case's layout, with its initial values.

    A user's ``nn.Dropout`` drops nothing: its draws are not the same at another layout.
    Raises Refusal with the layers' own sentence where the mesh does not divide the model.
    """
    how = Training(
        accumulation=case.accumulation,
        compile=case.compiled,
        fsdp=case.degrees.stage > 0,
        zero=max(1, case.degrees.stage),
        schedule=case.degrees.schedule,
    )
    trainer = Trainer(page, config, mesh, how, seed=SEED)
    for module in trainer.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return trainer


def one_step(
    page: Page, config: Any, mesh: Mesh, case: Case, shape: Shape, values: Tensors | None = None
) -> Tensors:
    """Everything of one step, as whole tensors by name; ``values`` replace the initial ones.

    "initial NAME" of every parameter, and what ``observed`` gives. Every rank of the mesh must call
    it. Raises Refusal or ValueError where the page cannot be run so, in the words of what cannot.
    """
    trainer = make_trainer(page, config, mesh, case)
    initial = full_tensors(trainer.model, mesh)
    if values is not None:
        load_full_tensors(trainer.model, mesh, values)
    batch = make_batch(vocabulary(trainer.model, config), shape, packed=case.packed)
    return _named("initial", initial) | observed(trainer, batch, case)


def observed(trainer: Trainer, batch: Batch, case: Case) -> Tensors:
    """The step of a trainer whose parameters have no gradient yet.

    "loss", "norm" of all gradients, "gradient NAME" and "clipped NAME" of every parameter. "output"
    is what forward returned for this rank's tokens, [rows, places, ..], where it has that shape; a
    pipeline's is not looked at, as most ranks have none. And of routers "count NAME", "router NAME"
    and "moved NAME": their tokens for each expert, their losses, and their biases after the step.
    """
    model, mesh = trainer.model, trainer.mesh
    outputs: list[Tensor] = []

    def keep(module: nn.Module, given: object, output: Any) -> None:
        last = output[-1] if isinstance(output, tuple) else output
        outputs.append(last.detach())

    with model.register_forward_hook(keep):
        loss = trainer.gradients(STEP, list(micro_batches(batch, mesh, case)))
    seen = {"loss": trainer.summed(loss)}
    b, s = batch.ids.shape
    own = (b // mesh.dp.size // case.accumulation, s // mesh.cp.size)
    if mesh.pp.size == 1 and all(output.shape[:2] == own for output in outputs):
        seen["output"] = torch.cat(outputs)
    seen |= _named("gradient", full_tensors(model, mesh, grads=True))
    seen["norm"] = clip_gradients(model, mesh, MAX_NORM)
    seen |= _named("clipped", full_tensors(model, mesh, grads=True))
    return seen | _routed(trainer) if trainer.has_routers else seen


def _routed(trainer: Trainer) -> Tensors:
    """What the routers leave of the step: "count NAME" of their tokens for each expert, "router
    NAME" of their losses, "moved NAME" of their biases."""
    counts = _of_all_stages(expert_counts(trainer.stages, trainer.mesh), trainer.mesh)
    losses = finish_step(trainer.stages, trainer.mesh)
    after = full_tensors(trainer.model, trainer.mesh)
    biases = {name: value for name, value in after.items() if name.endswith(".expert_bias")}
    return _named("count", counts) | _named("router", losses) | _named("moved", biases)


def _of_all_stages(own: Tensors, mesh: Mesh) -> Tensors:
    """What each stage has, on every rank of a pipeline."""
    every: list[Any] = [own] * mesh.pp.size
    if mesh.pp.size > 1:
        dist.all_gather_object(every, own, group=mesh.pp.group)
    return {name: tensor for tensors in every for name, tensor in tensors.items()}


def vocabulary(model: nn.Module, config: Any) -> int:
    """How many tokens a model knows: as its config says, else its first embedding."""
    said = getattr(config, "vocab_size", None)
    sizes = (said, *(getattr(module, "num_embeddings", None) for module in model.modules()))
    found = next((size for size in sizes if isinstance(size, int)), None)
    if found is None:
        raise Refusal(
            "the page says nowhere how many tokens it knows: its Config has no vocab_size, and no "
            "module of its has num_embeddings"
        )
    return found


def _rows(sequences: int, mesh: Mesh, case: Case) -> Iterator[slice]:
    """The rows of the batch that this rank sees, those of each micro-batch."""
    parts = mesh.dp.size * case.accumulation
    if sequences % parts:
        raise ValueError(f"{parts} micro-batches do not divide a step of {sequences} sequences")
    size = sequences // parts
    for turn in range(case.accumulation):
        first = (turn * mesh.dp.size + mesh.dp.rank) * size
        yield slice(first, first + size)


def micro_batches(batch: Batch, mesh: Mesh, case: Case) -> Iterator[MicroBatch]:
    """What the trainer is handed on this rank: whole sequences."""
    for rows in _rows(len(batch.ids), mesh, case):
        starts = {} if batch.starts is None else {"starts": batch.starts[rows]}
        yield MicroBatch(batch.ids[rows], batch.labels[rows], rows.start, **starts)


def _named(kind: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {f"{kind} {name}": tensor for name, tensor in tensors.items()}


def moved(initial: Mapping[str, Tensor]) -> Tensors:
    """Values off their initial ones: zeros and ones hide mistakes."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in initial.items()
    }


def alone(page: Page, config: Any, case: Case, shape: Shape, mesh: Mesh) -> tuple[Tensors, Tensors]:
    """The values that the step of one process is given, and the step."""
    values = moved(full_tensors(make_trainer(page, config, mesh, case).model, mesh))
    return values, one_step(page, config, mesh, case, shape, values)


def rounding(
    page: Page, config: Any, case: Case, shape: Shape, values: Tensors, step: Tensors
) -> dict[str, float]:
    """Gradients that are zero but for rounding: to be compared by the largest of all, given here.

    A bias of keys has such a one: what it adds to all scores of a query, the softmax takes away. In
    one process it is another number where the batch is taken in parts.
    """
    if page.loss not in LOSSES:
        return {}  # one call is all that there is
    mesh, parts = Mesh.single(), replace(case, accumulation=shape.sequences)
    again = one_step(page, config, mesh, parts, shape, values)
    largest = {
        kind: max(float(g.abs().max()) for name, g in step.items() if name.startswith(kind))
        for kind in ("gradient", "clipped")
    }
    return {
        name: largest[name.split()[0]]
        for name, found in differences(again, step, mesh, case, shape).items()
        if found > CLOSE and name.split()[0] in largest
    }


def differences(
    got: Tensors,
    expected: Tensors,
    mesh: Mesh,
    case: Case,
    shape: Shape,
    sizes: Mapping[str, float] = {},
) -> dict[str, float]:
    """max |a - b| / max |b| of each tensor, in the order of the step; ``CLOSE`` is rounding.

    ``sizes`` has what stands for max |b| of some. Infinite where they cannot be compared: one is
    missing, shapes or types differ, there is a NaN, or b is all zero and a is not. NaN where both
    are all zero: that says nothing of the layout. Initial values differ by infinity or not at all.
    """
    rows = [r for rows in _rows(shape.sequences, mesh, case) for r in range(rows.start, rows.stop)]
    places = own_places(shape.length, mesh)
    found: dict[str, float] = {}
    for name in [*expected, *(name for name in got if name not in expected)]:
        if name == "output" and mesh.pp.size > 1:
            continue
        if name not in got or name not in expected:
            found[name] = float("inf")
            continue
        a, b = got[name], expected[name]
        if name == "output":
            b = b[rows][:, places]
        found[name] = _difference(a, b, sizes.get(name), exact=name.startswith("initial"))
    return found


def _difference(a: Tensor, b: Tensor, size: float | None, *, exact: bool) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if exact:
        return 0.0 if torch.equal(a, b) else float("inf")
    if size is None:
        size = float(b.abs().max()) if b.numel() else 0.0
    if size == 0:
        return float("inf") if a.any() else float("nan")
    error = float((a - b).abs().max() / size)
    return error if error == error else float("inf")
