"""Ranks that do something together and agree on whether it worked. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .mesh import Mesh
from .refusal import Refusal

_LONGEST = 2000  # bytes of a sentence that goes from rank to rank


@dataclass(frozen=True)
class Team:
    """``size`` ranks of a process group whose collectives take tensors on ``device``."""

    size: int
    rank: int
    group: dist.ProcessGroup | None = None
    device: str = "cpu"

    @staticmethod
    def of(mesh: Mesh) -> Team:
        """All ranks of a mesh, over the group that it was launched on."""
        device = "cpu" if mesh.device_mesh is None else mesh.device_mesh.device_type
        return Team(mesh.size, mesh.rank, device=device)

    def run(self, work: Callable[[], Sequence[int]], count: int) -> list[list[int]]:
        """Each rank's ``count`` numbers that ``work`` returns.

        Where it raises on some rank, every rank raises a Refusal with the sentence of the first
        such rank. One all-gather where all is well.
        """
        if self.size == 1:
            return [list(work())]
        raised: Exception | None = None
        values: Sequence[int] = [0] * count
        try:
            values = work()
        except Exception as error:  # whatever it is, the others wait for word
            raised = error
        row = torch.tensor([int(raised is not None), *values], device=self.device)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        dist.all_gather(rows, row, group=self.group)
        gathered = [found.tolist() for found in rows]
        failed = [rank for rank, (flag, *_) in enumerate(gathered) if flag]
        if failed:
            raise Refusal(self._tell(failed[0], raised)) from raised
        return [found for _, *found in gathered]

    def _tell(self, source: int, raised: Exception | None) -> str:
        """On every rank what rank ``source`` raised."""
        text = torch.zeros(_LONGEST, dtype=torch.uint8)
        if raised is not None and source == self.rank:
            given = sentence_of(raised)
            told = given if isinstance(raised, Refusal) else f"rank {source}: {given}"
            letters = told.encode()[:_LONGEST]
            text[: len(letters)] = torch.tensor(list(letters), dtype=torch.uint8)
        text = text.to(self.device)
        dist.broadcast(text, source, group=self.group)
        return bytes(text.tolist()).rstrip(b"\0").decode(errors="replace")


def sentence_of(error: Exception) -> str:
    """What an exception says, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Refusal | OSError) else f"{type(error).__name__}: {text}"
