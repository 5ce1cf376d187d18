"""The mesh: which part of the model and of the batch this process holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

AXES = ("pp", "dp_replicate", "dp_shard", "ep", "cp", "tp")  # outermost first
CP_COMM_TYPES = ("all_gather", "p2p", "a2a")  # how attention exchanges keys and values over cp


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

    - ``tp`` cuts each layer, ``sequence_parallel`` also the activations between the layers, along
      their positions.
    - ``cp`` cuts the positions everywhere; attention exchanges keys and values by ``cp_comm_type``
      (Megatron's names): "all_gather" them, send them round a ring ("p2p"), or exchange heads for
      positions ("a2a").
    - ``dp_replicate`` x ``dp_shard`` x ``ep`` see different sequences. FSDP cuts dense parameters
      over ``dp_shard`` x ``ep`` x ``cp`` and keeps ``dp_replicate`` copies of the result.

    ``dtype`` is what the embedding hands on; weights stay float32 and every layer casts its own to
    its input's dtype. ``compiled``: the head and the loss run as one region of torch.compile, as
    the trainer's layers. ``recompute_core_attn``: attention saves its inputs only and runs again in
    the backward. ``loss_chunks``: the head and the loss work on so many pieces of the tokens, one
    after the other.
    """

    pp: Axis = Axis("pp")
    dp_replicate: Axis = Axis("dp_replicate")
    dp_shard: Axis = Axis("dp_shard")
    ep: Axis = Axis("ep")
    cp: Axis = Axis("cp")
    tp: Axis = Axis("tp")
    dp: Axis = Axis("dp")  # dp_replicate x dp_shard x ep: ranks that see different sequences
    dp_cp: Axis = Axis("dp_cp")  # dp x cp: ranks that see different tokens
    sequence_parallel: bool = False
    cp_comm_type: str = "all_gather"
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    recompute_core_attn: bool = False
    loss_chunks: int = 1
    device_mesh: DeviceMesh | None = None
    # What fully_shard takes: dp_shard x ep x cp flattened, behind dp_replicate where that is > 1.
    fsdp_mesh: DeviceMesh | None = None

    def __post_init__(self) -> None:
        if self.loss_chunks < 1:
            raise ValueError(f"loss_chunks={self.loss_chunks} has to be 1 (no chunks) or more")

    @staticmethod
    def single(
        dtype: torch.dtype = torch.float32,
        *,
        compiled: bool = False,
        recompute_core_attn: bool = False,
        loss_chunks: int = 1,
    ) -> Mesh:
        """One process, no process group."""
        return Mesh(
            dtype=dtype,
            compiled=compiled,
            recompute_core_attn=recompute_core_attn,
            loss_chunks=loss_chunks,
        )

    @staticmethod
    def launch(
        *,
        tp: int = 1,
        dp: int | None = None,
        dp_replicate: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        sequence_parallel: bool = False,
        cp_comm_type: str = "all_gather",
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
        recompute_core_attn: bool = False,
        loss_chunks: int = 1,
    ) -> Mesh:
        """The mesh over the initialised process group: tp innermost, then cp, then dp.

        ``dp`` counts all data-parallel ranks, ``dp_replicate`` x those that share a copy; left out,
        it is what tp and cp leave.
        Raises ValueError where the degrees do not make up the number of processes or an option is
        not known, RuntimeError without a process group, NotImplementedError for degrees that no
        layer supports yet.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "Mesh.launch needs a process group: start with torchrun and call "
                "torch.distributed.init_process_group, or use Mesh.single() for one process"
            )
        for name, degree in (("pp", pp), ("ep", ep)):
            if degree != 1:
                raise NotImplementedError(
                    f"{name}={degree} is not supported yet: only tp, cp and dp may be above 1"
                )
        if cp_comm_type not in CP_COMM_TYPES:
            raise ValueError(
                f"cp_comm_type={cp_comm_type!r} is not one of {', '.join(CP_COMM_TYPES)}"
            )
        world = dist.get_world_size()
        inner = tp * cp
        if min(tp, cp, dp_replicate) < 1 or world % inner:
            raise ValueError(
                f"tp={tp} x cp={cp} does not divide the {world} processes; start a multiple of "
                f"{inner}"
                if cp > 1
                else f"tp={tp} does not divide the {world} processes; start a multiple of tp"
            )
        if dp is None:
            dp = world // inner
        if dp * inner != world:
            over_cp = f" x cp={cp}" if cp > 1 else ""
            raise ValueError(
                f"tp={tp}{over_cp} x dp={dp} is {inner * dp} processes, but {world} were started"
            )
        if dp % dp_replicate:
            raise ValueError(f"dp_replicate={dp_replicate} does not divide dp={dp}")
        sizes = (pp, dp_replicate, dp // dp_replicate, ep, cp, tp)
        device_mesh = init_device_mesh(device, sizes, mesh_dim_names=AXES)
        flat = {
            "dp": device_mesh["dp_replicate", "dp_shard", "ep"]._flatten("dp"),
            "dp_cp": device_mesh["dp_replicate", "dp_shard", "ep", "cp"]._flatten("dp_cp"),
        }
        fsdp_mesh = device_mesh["dp_shard", "ep", "cp"]._flatten("fsdp")
        if dp_replicate > 1:
            # torch deprecates a slice of the root with a flattened dimension in it.
            both = device_mesh["dp_replicate", "dp_shard", "ep", "cp"].mesh
            fsdp_mesh = DeviceMesh.from_group(
                [device_mesh.get_group("dp_replicate"), fsdp_mesh.get_group()],
                device,
                both.reshape(dp_replicate, -1),
                mesh_dim_names=("dp_replicate", "fsdp"),
            )
        return Mesh(
            **{name: _axis(device_mesh[name], name) for name in AXES},
            dp=_axis(flat["dp"], "dp"),
            dp_cp=_axis(flat["dp_cp"], "dp_cp"),
            # One tp rank holds every position, so there is nothing to cut.
            sequence_parallel=sequence_parallel and tp > 1,
            cp_comm_type=cp_comm_type,
            dtype=dtype,
            compiled=compiled,
            recompute_core_attn=recompute_core_attn,
            loss_chunks=loss_chunks,
            device_mesh=device_mesh,
            fsdp_mesh=fsdp_mesh,
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
