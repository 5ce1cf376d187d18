"""One rank of a big job on one CPU: the runtime's own code over a fake process group.

Fake tensors run through ``Trainer``: what it builds, shards, communicates and keeps is what a real
rank of that size would, and only values are missing. CPU tensors stand in for a GPU's.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from cuda_kernels import as_on_cuda
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from tracker import Place, Tracker

import specc.runtime.mesh
from specc.runtime import Mesh
from specc.runtime.communication import Collective
from specc.runtime.data import MicroBatch
from specc.runtime.data_parallel import units
from specc.runtime.layouts import Degrees
from specc.runtime.model_shape import ModelShape
from specc.runtime.page import load_page
from specc.runtime.trainer import Trainer, Training
from specc.runtime.workload import Workload


@dataclass(frozen=True)
class Job:
    """A page at numbers of its ``Config``, and how it is trained."""

    page: Path
    numbers: dict[str, int | float]
    degrees: Degrees
    length: int
    batch: int = 1  # sequences of a micro-batch
    accumulation: int = 1
    rank: int = 0
    training: dict[str, Any] = field(default_factory=dict)  # fields of Training
    mesh: dict[str, Any] = field(default_factory=dict)  # options of Mesh.launch

    @property
    def how(self) -> Training:
        zero = self.degrees.zero
        return Training(
            accumulation=self.accumulation, zero=zero or 3, fsdp=zero != 0, **self.training
        )

    @property
    def workload(self) -> Workload:
        """Its numbers, for the formulas."""
        return Workload(
            self.degrees,
            self.length,
            self.batch,
            self.accumulation,
            self.mesh.get("dtype", torch.bfloat16),
            self.training.get("recompute"),
            self.mesh.get("loss_chunks", 1),
        )


@dataclass(frozen=True)
class Measured:
    """What a step did: the second, since the first makes FSDP's buffers. Bytes throughout."""

    shape: ModelShape
    collectives: list[tuple[Place, Collective]]
    groups: dict[str, str]  # of each axis: two that share one cannot be told apart
    saved: dict[int, int]  # what each layer's forward left behind, FSDP's buffers left out
    held: int  # between two steps
    peaks: dict[Place, int]
    at_peak: Counter[tuple[Place, str]]  # by the place and the operation that made it; if asked for
    operations: int
    seconds: float

    def counted(self, expected: Mapping[Collective, int]) -> Counter[Collective]:
        """What is expected, each axis under the name by which this measurement knows its ranks."""
        found: Counter[Collective] = Counter()
        for collective, count in expected.items():
            axis = _first(self.groups, self.groups[collective.axis])
            found[replace(collective, axis=axis)] += count
        return found

    def between_ranks(self, place: Place) -> Counter[Collective]:
        """What a place of the step communicated over tp and cp, FSDP's own left out."""
        sharding = {_first(self.groups, self.groups[axis]) for axis in ("fsdp", "dp_replicate")}
        found = Counter(one for at, one in self.collectives if at == place)
        return Counter({one: n for one, n in found.items() if one.axis not in sharding})

    @property
    def peak(self) -> int:
        return max(self.peaks.values())


def simulate(job: Job, *, explain: bool = False) -> Measured:
    """Builds the page and takes two steps. No process group may run, and none is left.

    ``explain``: takes a third, which notes what is held at the peak.
    """
    page = load_page(job.page)
    config = page.config(job.numbers)
    with ExitStack() as stack:
        stack.enter_context(fake_group(job.degrees.size, job.rank))
        mesh = job.degrees.mesh(**{"dtype": torch.bfloat16, **job.mesh})
        stack.enter_context(no_values())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        groups = _axes(mesh)
        names = {group: _first(groups, group) for group in groups.values()}
        tracker = stack.enter_context(Tracker(names))
        stack.enter_context(as_on_cuda())
        trainer = Trainer(page, config, mesh, job.how)
        saved: dict[int, int] = {}
        _follow(trainer.model, tracker, saved)
        ids = torch.zeros(job.batch, job.length, dtype=torch.int64)
        batches = [MicroBatch(ids, ids, turn * job.batch) for turn in range(job.accumulation)]
        for step in range(3 if explain else 2):
            tracker.watched_peak = tracker.peak if step == 2 else 0
            tracker.restart()
            tracker.place = Place("step")
            start = time.perf_counter()
            trainer.step(step, 1e-4, batches)
            seconds = time.perf_counter() - start
        return Measured(
            shape=ModelShape.of(trainer.model),
            collectives=list(tracker.seen),
            groups=groups,
            saved=saved,
            held=tracker.held(),
            peaks=dict(tracker.peaks),
            at_peak=Counter(tracker.at_peak),
            operations=tracker.operations,
            seconds=seconds,
        )


def without_group(function: Callable[..., Any], *args: Any) -> Any:
    """Runs it in a rank of the tests' pool, which is of no use for anything else afterwards."""
    if dist.is_initialized():
        dist.destroy_process_group()
    # The pool keeps meshes for its group, and here each function makes another.
    specc.runtime.mesh.init_device_mesh = dist.device_mesh.init_device_mesh
    return function(*args)


@contextmanager
def fake_group(size: int, rank: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def no_values() -> Iterator[None]:
    """Leaves out what would take time or ask for a value: initial values, the count of labels."""
    materialize = sys.modules["specc.runtime.materialize"]  # the package has a function of the name
    counted = property(lambda batch: batch.labels.numel())
    with (
        patch.object(materialize, "fill"),
        patch.object(MicroBatch, "tokens", counted),
        patch.object(nn.Module, "to_empty", _to_empty),
    ):
        yield


def _to_empty(model: nn.Module, *, device: str) -> None:
    """torch's own refuses a parameter that becomes a fake tensor, unless it is a DTensor."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    new = torch.empty_like(tensor, device=device)
                    tensors[name] = nn.Parameter(new) if tensors is module._parameters else new


def _axes(mesh: Mesh) -> dict[str, str]:
    """The process group's name of each axis. Axes of the same ranks may share a group."""
    assert mesh.fsdp_mesh is not None and dist.group.WORLD is not None
    axes = (mesh.tp, mesh.cp, mesh.dp_cp, mesh.dp, mesh.dp_shard, mesh.dp_replicate)
    names = {axis.name: axis.group_name for axis in axes}
    for dim, name in enumerate(("dp_replicate", "fsdp")[-mesh.fsdp_mesh.ndim :]):
        names[name] = mesh.fsdp_mesh.get_group(dim).group_name
    return names | {"world": dist.group.WORLD.group_name}


def _first(groups: Mapping[str, str], group: str) -> str:
    return next(name for name, other in groups.items() if other == group)


def _follow(model: nn.Module, tracker: Tracker, saved: dict[int, int]) -> None:
    """Keeps the tracker's place, and notes what each layer's forward leaves behind."""

    def backward(tensor: Tensor, place: Place) -> None:
        def enter(grad: Tensor) -> None:
            tracker.place = place

        tensor.register_hook(enter)

    def begin(module: nn.Module, args: Any) -> None:
        tracker.place = Place("forward")

    def end(module: nn.Module, args: Any, output: Tensor) -> None:
        backward(output, Place("backward"))

    def follow(unit: nn.Module, number: int) -> None:
        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            if number == 0:
                backward(args[0], Place("end"))
            tracker.place = Place("forward", number)
            saved[number] = -tracker.held(sharding=False)

        def leave(module: nn.Module, args: Any, output: Tensor) -> None:
            saved[number] += tracker.held(sharding=False)
            tracker.place = Place("forward")
            backward(output, Place("backward", number))

        unit.register_forward_pre_hook(enter, prepend=True)
        unit.register_forward_hook(leave)

    model.register_forward_pre_hook(begin, prepend=True)
    model.register_forward_hook(end)
    for number, unit in enumerate(units(model)):
        follow(unit, number)
