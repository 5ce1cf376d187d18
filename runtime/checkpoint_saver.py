"""Saver: writes a run's checkpoints, at once or in a thread beside the training."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .checkpoint_copies import Copies
from .checkpoint_folder import (
    FACTS,
    INDEX,
    partial,
    prepare,
    publish,
    retire,
    target,
    write_file,
)
from .checkpoint_index import SECTIONS, File, Index, Saved
from .checkpoint_plan import Named, Planner, model_tensors, optimizer_tensors, own_parts
from .checkpoint_stages import Held, held_by_all
from .checkpoint_team import Team, sentence_of
from .mesh import Mesh
from .parameters import LocalPart, local_tensor
from .refusal import Refusal
from .safetensors import Entry, header, write


class StepFacts(Protocol):
    """What a saver asks of the facts that it stores."""

    @property
    def step(self) -> int: ...

    def json(self) -> str: ...


@dataclass(frozen=True)
class _Job:
    """One checkpoint to write: everything that the thread needs, none of it the training's."""

    step: int
    saved: Mapping[str, Mapping[str, Saved]]  # every tensor by section: what the index will say
    own: Mapping[str, Mapping[str, tuple[Tensor, LocalPart]]]  # what this rank writes
    facts: str
    tokenizer: Path | None


class Saver:
    """Writes checkpoints into ``folder`` and keeps the newest ``keep`` of them.

    Every rank writes the shards that it holds, one file for each section. ``asynchronous``: save
    copies this rank's shards into memory of its own (the size of the shards, used again by the
    next save; pinned, and not waited for, on CUDA) and returns, and a thread writes them. The
    threads talk over a gloo group of their own, so that no collective of the training is held up;
    ``timeout`` is how long it waits for a rank.

    All ranks call the methods together.
    """

    def __init__(
        self,
        folder: Path,
        mesh: Mesh,
        *,
        keep: int = 2,
        asynchronous: bool = False,
        timeout: timedelta | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least 1 checkpoint stays")
        self.folder = folder
        self.mesh = mesh
        self.keep = keep
        self.asynchronous = asynchronous
        self.timeout = timeout
        self.saved: Path | None = None  # the newest that is known to be complete
        self._group: dist.ProcessGroup | None = None
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._copies = Copies()
        self._planner = Planner(mesh)
        self._known: tuple[object, Mapping[tuple[str, str], Held]] | None = None

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        facts: StepFacts,
        tokenizer: Path | None = None,
    ) -> Path:
        """Write a checkpoint; where it is, or asynchronously where it will be.

        Waits for the save before. Raises Refusal, on all ranks, where that one or this one could
        not be written, and what the collective raised where a rank was lost.
        """
        self._wait()
        if self.mesh.size > 1 and self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=self.timeout)
        job = self._job(model, optimizer, facts, tokenizer)
        if self.asynchronous:
            self._thread = threading.Thread(
                target=self._write, args=(job,), name="specc-checkpoint", daemon=True
            )
            self._thread.start()
        else:
            self._write(job)
            self._raise()
        return target(self.folder, job.step)

    def finish(self) -> None:
        """Wait for the save that is being written, and end the group. Raises as ``save`` does.

        A save after it begins anew.
        """
        try:
            self._wait()
        finally:
            self._copies.clear()
            if self._group is not None:
                dist.destroy_process_group(self._group)
                self._group = None

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()

    def _raise(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    @torch.no_grad()
    def _job(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        facts: StepFacts,
        tokenizer: Path | None,
    ) -> _Job:
        tensors = {"model": model_tensors(model), "optimizer": optimizer_tensors(model, optimizer)}
        everywhere = self._everywhere(tensors)
        # Both at once, so that what many ranks hold is spread over them all.
        shards = self._planner.assign(
            {(s, n): held for s in SECTIONS for n, held in tensors[s].items()}, everywhere
        )
        saved: dict[str, dict[str, Saved]] = {section: {} for section in SECTIONS}
        for (section, name), found in shards.items():
            held = everywhere[section, name]
            saved[section][name] = Saved(held.dtype, held.shape, found)
        own: dict[str, dict[str, tuple[Tensor, LocalPart]]] = {section: {} for section in SECTIONS}
        for (section, name), part in own_parts(shards, self.mesh.rank).items():
            local = part.valid(local_tensor(tensors[section][name][0]))
            if self.asynchronous:
                local = self._copies.take((section, name), local)
            own[section][name] = (local, part)
        return _Job(facts.step, saved, own, facts.json(), tokenizer)

    def _everywhere(self, tensors: Mapping[str, Named]) -> Mapping[tuple[str, str], Held]:
        """What all stages of a pipeline hold, by section and name; asked for once."""
        names = tuple((section, name) for section in SECTIONS for name in tensors[section])
        if self._known is None or self._known[0] != names:
            found = {
                (section, name): held
                for section in SECTIONS
                for name, held in held_by_all(tensors[section], self.mesh).items()
            }
            self._known = (names, found)
        return self._known[1]

    def _write(self, job: _Job) -> None:
        """Runs in the thread, if there is one."""
        try:
            self._copies.wait()
            self._together(job)
            self.saved = target(self.folder, job.step)
        except (Refusal, OSError) as error:
            self._failed = Refusal(
                f"Saving the checkpoint of step {job.step} in {self.folder} failed: "
                f"{sentence_of(error).rstrip('.')}."
            )
            self._failed.__cause__ = error
        except Exception as error:  # a rank was lost: the collective's own word
            self._failed = error

    def _together(self, job: _Job) -> None:
        """The three times that ranks wait for each other: to begin, all written, all done."""
        mesh, step, folder = self.mesh, job.step, self.folder
        team = Team(mesh.size, mesh.rank, self._group)
        first = mesh.rank == 0
        team.run(_if(first, lambda: prepare(folder, step)), 0)
        numbers = team.run(lambda: self._write_files(job), 2 * len(SECTIONS))

        def finish() -> None:
            index = Index(_files(numbers), job.saved).text()
            texts = {FACTS: job.facts.encode(), INDEX: index.encode()}
            if job.tokenizer is not None:
                texts["tokenizer.json"] = job.tokenizer.read_bytes()
            publish(folder, step, texts)
            retire(folder, self.keep)

        team.run(_if(first, finish), 0)

    def _write_files(self, job: _Job) -> list[int]:
        """Write this rank's files; of each its bytes and its header's CRC-32, 0 where it has none.

        A file says itself where its shards lie, as the Hugging Face format of
        torch.distributed.checkpoint does, so that its reader takes them too.
        """
        numbers = []
        for section in SECTIONS:
            own = job.own[section]
            entries = {n: Entry(tensor.dtype, part.extent) for n, (tensor, part) in own.items()}
            offsets = {name: {"saved_offsets": part.offset} for name, (_, part) in own.items()}
            metadata = {"format": "pt", "DCP_SHARDING_INFO": json.dumps(offsets)}
            if not own:
                numbers += [0, 0]
                continue
            path = partial(self.folder, job.step) / _name(section, self.mesh.rank, self.mesh.size)
            parts = ((name, tensor) for name, (tensor, _) in own.items())
            write_file(path, lambda file: write(file, entries, parts, metadata))  # noqa: B023
            numbers += [path.stat().st_size, zlib.crc32(header(entries, metadata))]
        return numbers


def _if(does: bool, work: Callable[[], None]) -> Callable[[], Sequence[int]]:
    def run() -> Sequence[int]:
        if does:
            work()
        return ()

    return run


def _name(section: str, rank: int, size: int) -> str:
    return (
        f"{section}.safetensors" if size == 1 else f"{section}-{rank:05d}-of-{size:05d}.safetensors"
    )


def _files(numbers: list[list[int]]) -> dict[str, dict[int, File]]:
    files: dict[str, dict[int, File]] = {}
    for place, section in enumerate(SECTIONS):
        files[section] = {
            rank: File(_name(section, rank, len(numbers)), *row[2 * place : 2 * place + 2])
            for rank, row in enumerate(numbers)
            if row[2 * place]
        }
    return files
