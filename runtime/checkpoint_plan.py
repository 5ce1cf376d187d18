"""Which rank writes which part of each tensor: worked out by every rank alone.

The mesh and the table of parameters say what each rank holds, so nothing is exchanged: neither
plans nor offsets. A part that several ranks hold is written by one of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor, nn

from .checkpoint_index import Shard, Shards
from .checkpoint_stages import Held
from .mesh import AXES, Mesh
from .optimizer import STATES
from .parameters import (
    Division,
    LocalPart,
    ParameterRecord,
    canonical_parameters,
    divisions,
    local_part,
    part_of,
)

K = TypeVar("K", bound=Hashable)
Named = Mapping[str, tuple[Tensor, ParameterRecord]]
_FLAT = {  # flattened axes, outermost first, as Mesh.launch makes them
    "fsdp": ("dp_shard", "cp"),
    "dp": ("dp_replicate", "dp_shard"),
    "dp_cp": ("dp_replicate", "dp_shard", "cp"),
}


def model_tensors(model: nn.Module) -> Named:
    """Parameters by qualified name (of tied ones the first), and buffers that a state dict holds.

    A buffer is the same on every rank.
    """
    found = {name: (p, record) for name, record, p in canonical_parameters(model)}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, nn.Parameter):
            found[name] = (tensor, ParameterRecord(tuple(tensor.shape)))
    return found


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Named:
    """``optim.exp_avg.NAME`` and ``optim.exp_avg_sq.NAME`` of each parameter that is trained."""
    return {
        f"optim.{key}.{name}": (optimizer.state[parameter][key], record)
        for name, record, parameter in canonical_parameters(model)
        if parameter in optimizer.state  # not where it is frozen
        for key in STATES
    }


def ranks_places(mesh: Mesh) -> list[dict[str, int]]:
    """Each rank's number on every axis, flattened ones too. Ranks lie row by row in the mesh."""
    sizes = {axis: getattr(mesh, axis).size for axis in AXES}
    places = []
    for rank in range(math.prod(sizes.values())):
        place, rest = {}, rank
        for axis in reversed(AXES):
            rest, place[axis] = divmod(rest, sizes[axis])
        for flat, axes in _FLAT.items():
            place[flat] = 0
            for axis in axes:
                place[flat] = place[flat] * sizes[axis] + place[axis]
        # The same ranks as experts divide them (EXPERT_AXES).
        among = rank % (sizes["dp_shard"] * sizes["cp"] * sizes["tp"])
        among, place["etp"] = divmod(among, mesh.etp.size)
        place["edp_shard"], place["ep"] = divmod(among, mesh.ep.size)
        places.append(place)
    return places


class Planner:
    """Says which rank writes which part, for one mesh; what it worked out it keeps."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._places = ranks_places(mesh)
        # Bytes of each holder, by how many there are and in which stages.
        self._load: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self._held = cache(self._find_held)
        self._sizes = cache(self._count)
        self._chosen = cache(self._choose)

    def assign(
        self,
        tensors: Mapping[K, tuple[Tensor, ParameterRecord]],
        everywhere: Mapping[K, Held] | None = None,
    ) -> dict[K, Shards]:
        """The shards of each tensor; the same on every rank.

        ``tensors``: this rank's; ``everywhere``: those of all stages of a pipeline, where there is
        one, in an order that all ranks have. Tensors that are cut alike share one object. Raises
        RuntimeError where the shards would not be what this rank holds.
        """
        self._load.clear()
        if everywhere is None:
            everywhere = {
                key: Held(tensor.dtype, record.shape, divisions(record, tensor, self.mesh))
                for key, (tensor, record) in tensors.items()
            }
        return {key: self._shards(held, tensors.get(key)) for key, held in everywhere.items()}

    def _shards(self, held: Held, here: tuple[Tensor, ParameterRecord] | None) -> Shards:
        cut = (held.shape, held.cuts, held.stages)
        if here is not None:
            tensor, record = here
            own = local_part(record, tensor, self.mesh)
            if all(own.extent) and self.mesh.rank not in self._held(*cut).get(own, ()):
                raise RuntimeError(
                    f"rank {self.mesh.rank} holds {own} of a tensor {held.shape} cut by "
                    f"{held.cuts}, and by the mesh's sizes it would not: "
                    f"{self._places[self.mesh.rank]}"
                )
        copies, largest = self._sizes(*cut)
        load = self._load.setdefault((copies, held.stages), [0] * copies)
        turn = load.index(min(load))
        load[turn] += held.dtype.itemsize * largest
        return self._chosen(*cut, turn)

    def _find_held(
        self, shape: tuple[int, ...], cuts: tuple[Division, ...], stages: tuple[int, ...]
    ) -> dict[LocalPart, tuple[int, ...]]:
        """The ranks that hold each part which is not empty."""
        held: dict[LocalPart, list[int]] = {}
        for rank, place in enumerate(self._places):
            if place["pp"] not in stages:
                continue
            part = part_of(shape, [(division, place[division.axis]) for division in cuts])
            if all(part.extent):
                held.setdefault(part, []).append(rank)
        return {part: tuple(ranks) for part, ranks in held.items()}

    def _count(
        self, shape: tuple[int, ...], cuts: tuple[Division, ...], stages: tuple[int, ...]
    ) -> tuple[int, int]:
        """How many ranks hold each part, and how many entries the largest part has."""
        held = self._held(shape, cuts, stages)
        largest = max((math.prod(part.extent) for part in held), default=0)
        return min(map(len, held.values()), default=1), largest

    def _choose(
        self,
        shape: tuple[int, ...],
        cuts: tuple[Division, ...],
        stages: tuple[int, ...],
        turn: int,
    ) -> Shards:
        held = self._held(shape, cuts, stages)
        return tuple(Shard(ranks[turn], part) for part, ranks in held.items())


def own_parts(shards: Mapping[K, Shards], rank: int) -> dict[K, LocalPart]:
    """What ``rank`` writes of each tensor, where it writes any: one part at most."""
    parts: dict[int, LocalPart | None] = {}  # tensors that are cut alike share their shards
    own: dict[K, LocalPart] = {}
    for key, table in shards.items():
        if id(table) not in parts:
            parts[id(table)] = next((s.part for s in table if s.writer == rank), None)
        part = parts[id(table)]
        if part is not None:
            own[key] = part
    return own
