"""What the stages of a pipeline hold together: each rank tells the others of pp, once.

A rank of a pipeline knows the cut of its own tensors only, and a checkpoint's plan asks for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .mesh import Mesh
from .parameters import Division, ParameterRecord, divisions


@dataclass(frozen=True)
class Held:
    """A tensor as a plan sees it. ``stages``: the ranks of pp that hold it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    cuts: tuple[Division, ...]
    stages: tuple[int, ...] = (0,)


def held_by_all(
    tensors: Mapping[str, tuple[Tensor, ParameterRecord]], mesh: Mesh
) -> dict[str, Held]:
    """What the ranks of pp hold of one model, in the order of the stages: the same on all of them.

    Raises RuntimeError where two of them hold a tensor of one name that is not the same.
    """
    own = {
        name: Held(tensor.dtype, record.shape, divisions(record, tensor, mesh))
        for name, (tensor, record) in tensors.items()
    }
    if mesh.pp.size == 1:
        return own
    found: dict[str, Held] = {}
    for rank, text in enumerate(_exchanged(_written(own), mesh)):
        for name, held in _read(text).items():
            before = found.get(name)
            if before is None:
                stages: tuple[int, ...] = (rank,)
            elif (before.dtype, before.shape, before.cuts) == (held.dtype, held.shape, held.cuts):
                stages = (*before.stages, rank)
            else:
                raise RuntimeError(f"rank {rank} of pp holds {name} as {held}, others as {before}")
            found[name] = Held(held.dtype, held.shape, held.cuts, stages)
    return found


def _written(own: Mapping[str, Held]) -> bytes:
    rows = [
        (
            name,
            str(held.dtype).removeprefix("torch."),
            held.shape,
            [(cut.dim, cut.parts, cut.axis) for cut in held.cuts],
        )
        for name, held in own.items()
    ]
    return json.dumps(rows).encode()


def _read(text: bytes) -> dict[str, Held]:
    return {
        name: Held(getattr(torch, dtype), tuple(shape), tuple(Division(*cut) for cut in cuts))
        for name, dtype, shape, cuts in json.loads(text)
    }


def _exchanged(text: bytes, mesh: Mesh) -> list[bytes]:
    device = "cpu" if mesh.device_mesh is None else mesh.device_mesh.device_type
    length = torch.tensor([len(text)], device=device)
    lengths = [torch.empty_like(length) for _ in range(mesh.pp.size)]
    dist.all_gather(lengths, length, group=mesh.pp.group)
    sizes = [int(size) for size in lengths]
    row = torch.zeros(max(sizes), dtype=torch.uint8)
    row[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    row = row.to(device)
    rows = [torch.empty_like(row) for _ in sizes]
    dist.all_gather(rows, row, group=mesh.pp.group)
    return [bytes(found[:size].tolist()) for found, size in zip(rows, sizes, strict=True)]
