"""The mesh: which part of the model and of the batch this process holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")  # outermost first
# The same ranks, divided for experts.
EXPERT_AXES = ("pp", "dp_replicate", "edp_shard", "ep", "etp")
CAPACITY_SCOPES = ("micro_batch", "rank")
TOKEN_DISPATCHERS = ("alltoall", "allgather")
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
    - ``dp_replicate`` x ``dp_shard`` see different sequences. FSDP cuts dense parameters over
      ``dp_shard`` x ``cp`` and keeps ``dp_replicate`` copies of the result.
    - ``pp`` cuts the stack of layers into stages; ``stage`` of ``stages`` is the one that a model
      is built for (``at_stage``), as a rank may hold several.
    - Experts divide the ranks of a stage anew, in the same order (Megatron's parallel folding):
      ``ep`` deals out whole experts, ``etp`` cuts each, and ``edp`` = ``dp_replicate`` x
      ``edp_shard`` holds copies, which FSDP cuts over ``edp_shard``.

    ``dtype`` is what the embedding hands on; weights stay float32 and every layer casts its own to
    its input's dtype. ``compiled``: the head and the loss run as one region of torch.compile, as
    the trainer's layers. ``recompute_core_attn``: attention saves its inputs only and runs again in
    the backward. ``loss_chunks``: the head and the loss work on so many pieces of the tokens, one
    after the other.
    """

    pp: Axis = Axis("pp")
    dp_replicate: Axis = Axis("dp_replicate")
    dp_shard: Axis = Axis("dp_shard")
    cp: Axis = Axis("cp")
    tp: Axis = Axis("tp")
    dp: Axis = Axis("dp")  # dp_replicate x dp_shard: ranks that see different sequences
    dp_cp: Axis = Axis("dp_cp")  # dp x cp: ranks that see different tokens
    tp_cp: Axis = Axis("tp_cp")  # cp x tp: ranks that share a micro-batch
    dp_cp_tp: Axis = Axis("dp_cp_tp")  # all ranks of a stage
    ep: Axis = Axis("ep")
    etp: Axis = Axis("etp")
    edp: Axis = Axis("edp")  # dp_replicate x edp_shard: ranks with the same part of the experts
    stage: int = 0
    stages: int = 1
    sequence_parallel: bool = False
    cp_comm_type: str = "all_gather"
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    recompute_core_attn: bool = False
    loss_chunks: int = 1
    capacity_scope: str = "micro_batch"
    moe_token_dispatcher_type: str = "alltoall"
    device_mesh: DeviceMesh | None = None
    # What fully_shard takes: dp_shard x cp flattened, behind dp_replicate where that is > 1.
    fsdp_mesh: DeviceMesh | None = None
    expert_fsdp_mesh: DeviceMesh | None = None  # the same of edp_shard

    def __post_init__(self) -> None:
        if not 0 <= self.stage < self.stages:
            raise ValueError(f"stage {self.stage} is not one of {self.stages}")
        for name, known in (
            ("capacity_scope", CAPACITY_SCOPES),
            ("moe_token_dispatcher_type", TOKEN_DISPATCHERS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(known)}")
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
        etp: int | None = None,
        capacity_scope: str = "micro_batch",
        moe_token_dispatcher_type: str = "alltoall",
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
        it is what tp, cp and pp leave. ``etp`` left out is tp.
        Raises ValueError where the degrees do not make up the number of processes or an option is
        not known, RuntimeError without a process group.
        """
        if not dist.is_initialized():
            raise RuntimeError(
                "Mesh.launch needs a process group: start with torchrun and call "
                "torch.distributed.init_process_group, or use Mesh.single() for one process"
            )
        if cp_comm_type not in CP_COMM_TYPES:
            raise ValueError(
                f"cp_comm_type={cp_comm_type!r} is not one of {', '.join(CP_COMM_TYPES)}"
            )
        world = dist.get_world_size()
        if pp < 1 or world % pp:
            raise ValueError(f"pp={pp} does not divide the {world} processes")
        in_stage = world // pp
        inner = tp * cp
        if min(tp, cp, dp_replicate) < 1 or in_stage % inner:
            raise ValueError(
                f"tp={tp} x cp={cp} does not divide the {in_stage} processes; start a multiple of "
                f"{inner}"
                if cp > 1
                else f"tp={tp} does not divide the {in_stage} processes; start a multiple of tp"
            )
        if dp is None:
            dp = in_stage // inner
        if dp * inner != in_stage:
            over_cp = f" x cp={cp}" if cp > 1 else ""
            over_pp = f" x pp={pp}" if pp > 1 else ""
            raise ValueError(
                f"tp={tp}{over_cp} x dp={dp}{over_pp} is {inner * dp * pp} processes, but {world} "
                "were started"
            )
        if dp % dp_replicate:
            raise ValueError(f"dp_replicate={dp_replicate} does not divide dp={dp}")
        etp = tp if etp is None else etp
        shard = in_stage // dp_replicate
        if min(ep, etp) < 1 or shard % (ep * etp):
            raise ValueError(
                f"ep={ep} x etp={etp} does not divide the {shard} processes that share one copy of "
                f"a stage's experts"
            )
        sizes = (pp, dp_replicate, dp // dp_replicate, cp, tp)
        device_mesh = init_device_mesh(device, sizes, mesh_dim_names=AXES)
        flat = {
            "dp": device_mesh["dp_replicate", "dp_shard"]._flatten("dp"),
            "dp_cp": device_mesh["dp_replicate", "dp_shard", "cp"]._flatten("dp_cp"),
            "tp_cp": device_mesh["cp", "tp"]._flatten("tp_cp"),
            "dp_cp_tp": device_mesh["dp_replicate", "dp_shard", "cp", "tp"]._flatten("dp_cp_tp"),
        }
        parts = device_mesh["dp_shard", "cp"]._flatten("fsdp")
        if (ep, etp) == (1, tp) and 1 in sizes:
            # Experts divide the ranks as all else does: more groups would only slow the start.
            flat |= {"edp": flat["dp_cp"], "etp": device_mesh["tp"]}
            flat["ep"] = device_mesh[AXES[sizes.index(1)]]
            expert_parts = DeviceMesh.from_group(
                parts.get_group(), device, parts.mesh, mesh_dim_names=("edp_shard",)
            )
        else:
            expert_sizes = (pp, dp_replicate, shard // (ep * etp), ep, etp)
            expert_mesh = init_device_mesh(device, expert_sizes, mesh_dim_names=EXPERT_AXES)
            flat["edp"] = expert_mesh["dp_replicate", "edp_shard"]._flatten("edp")
            flat |= {name: expert_mesh[name] for name in ("ep", "etp")}
            expert_parts = expert_mesh["edp_shard"]
        copies = device_mesh["dp_replicate"]
        axes: dict[str, Any] = {name: _axis(device_mesh[name], name) for name in AXES}
        axes |= {name: _axis(part, name) for name, part in flat.items()}
        return Mesh(
            **axes,
            capacity_scope=capacity_scope,
            moe_token_dispatcher_type=moe_token_dispatcher_type,
            # One tp rank holds every position, so there is nothing to cut.
            sequence_parallel=sequence_parallel and tp > 1,
            cp_comm_type=cp_comm_type,
            dtype=dtype,
            compiled=compiled,
            recompute_core_attn=recompute_core_attn,
            loss_chunks=loss_chunks,
            device_mesh=device_mesh,
            fsdp_mesh=_with_copies(copies, parts, shard),
            expert_fsdp_mesh=_with_copies(copies, expert_parts, shard),
        )

    @property
    def first_stage(self) -> bool:
        """Whether the model built with this mesh looks up tokens; true in one process."""
        return self.stage == 0

    @property
    def last_stage(self) -> bool:
        """Whether the model built with this mesh has the head and the loss; true in one process."""
        return self.stage == self.stages - 1

    def at_stage(self, stage: int, stages: int) -> Mesh:
        """The mesh that stage ``stage`` of ``stages`` of a pipeline is built with.

        Raises ValueError where there is no such stage.
        """
        return replace(self, stage=stage, stages=stages)

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


def _with_copies(copies: DeviceMesh, parts: DeviceMesh, apart: int) -> DeviceMesh:
    """``parts`` behind dp_replicate, whose ranks are so many ``apart``; alone where there is one.

    torch deprecates a slice of the root with a flattened dimension in it.
    """
    if copies.size() == 1:
        return parts
    others = torch.arange(copies.size()) - copies.get_local_rank()
    return DeviceMesh.from_group(
        [copies.get_group(), parts.get_group()],
        parts.device_type,
        parts.mesh + apart * others[:, None],
        mesh_dim_names=("dp_replicate", *(parts.mesh_dim_names or ())),
    )


def _axis(mesh: DeviceMesh, name: str) -> Axis:
    return Axis(name, mesh.size(), mesh.get_local_rank(), mesh.get_group())
