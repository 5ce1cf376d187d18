"""The mesh: which part of the model and of the batch this process holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

AXES = ("pp", "dp_replicate", "dp_shard", "ep", "cp", "tp")  # outermost first


@dataclass(frozen=True)
class Axis:
    """One axis of the mesh, as this process sees it.

    ``group`` is the process group of the ranks that differ from this one in this axis only; it is
    None where ``size`` is 1 and no process group runs.
    """

    name: str
    size: int = 1
    rank: int = 0
    group: dist.ProcessGroup | None = None
    # A plain string, because functional collectives (and a compiled graph) name their group by it.
    group_name: str = field(init=False, compare=False, default="")

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(
                f"rank {self.rank} is not on axis {self.name!r}, which has {self.size} ranks"
            )
        if self.size > 1 and self.group is None:
            raise ValueError(f"axis {self.name!r} has {self.size} ranks and no process group")
        if self.group is not None:
            object.__setattr__(self, "group_name", str(self.group.group_name))


@dataclass(frozen=True)
class Mesh:
    """How the processes of a run divide the work; handed to every layer that communicates.

    ``dp_shard`` counts the ranks that share the experts' shards too (with ``ep`` and ``cp`` it
    makes up the axis over which dense parameters are sharded). ``sequence_parallel`` cuts
    activations between the layers along their positions, over ``tp``. ``dtype`` is what the
    embedding hands on; weights stay float32 and every layer casts its own to its input's dtype.
    ``compiled``: the head and the loss run as one region of torch.compile, as the trainer's layers.
    """

    pp: Axis = Axis("pp")
    dp_replicate: Axis = Axis("dp_replicate")
    dp_shard: Axis = Axis("dp_shard")
    ep: Axis = Axis("ep")
    cp: Axis = Axis("cp")
    tp: Axis = Axis("tp")
    dp: Axis = Axis("dp")  # dp_replicate x dp_shard x ep: ranks that see different sequences
    sequence_parallel: bool = False
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    device_mesh: DeviceMesh | None = None
    dp_mesh: DeviceMesh | None = None  # `dp`, the way FSDP wants it

    @staticmethod
    def single(dtype: torch.dtype = torch.float32, *, compiled: bool = False) -> Mesh:
        """One process, no process group."""
        return Mesh(dtype=dtype, compiled=compiled)

    @staticmethod
    def launch(
        *,
        tp: int = 1,
        dp: int | None = None,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        sequence_parallel: bool = False,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
    ) -> Mesh:
        """The mesh over the initialised process group: tp innermost, then dp (what is left).

        Raises ValueError where the degrees do not make up the number of processes, RuntimeError
        without a process group, NotImplementedError for degrees that no layer supports yet.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "Mesh.launch needs a process group: start with torchrun and call "
                "torch.distributed.init_process_group, or use Mesh.single() for one process"
            )
        for name, degree in (("pp", pp), ("cp", cp), ("ep", ep)):
            if degree != 1:
                raise NotImplementedError(
                    f"{name}={degree} is not supported yet: only tp and dp may be above 1"
                )
        world = dist.get_world_size()
        if tp < 1 or world % tp:
            raise ValueError(
                f"tp={tp} does not divide the {world} processes; start a multiple of tp"
            )
        if dp is None:
            dp = world // tp
        if dp * tp != world:
            raise ValueError(f"tp={tp} x dp={dp} is {tp * dp} processes, but {world} were started")
        sizes = (pp, 1, dp, ep, cp, tp)
        device_mesh = init_device_mesh(device, sizes, mesh_dim_names=AXES)
        dp_mesh = device_mesh["dp_replicate", "dp_shard", "ep"]._flatten("dp")
        return Mesh(
            **{name: _axis(device_mesh[name], name) for name in AXES},
            dp=_axis(dp_mesh, "dp"),
            # One tp rank holds every position, so there is nothing to cut.
            sequence_parallel=sequence_parallel and tp > 1,
            dtype=dtype,
            compiled=compiled,
            device_mesh=device_mesh,
            dp_mesh=dp_mesh,
        )

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.dp.size * self.tp.size * self.pp.size * self.cp.size

    @property
    def rank(self) -> int:
        """This process's number among all."""
        return self.device_mesh.get_rank() if self.device_mesh is not None else 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Mesh:
        return self  # process groups cannot be copied, and a copied layer works on the same mesh


def _axis(mesh: DeviceMesh, name: str) -> Axis:
    return Axis(name, mesh.size(), mesh.get_local_rank(), mesh.get_group())
