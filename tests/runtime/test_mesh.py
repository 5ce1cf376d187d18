"""The mesh: layouts over a process group, and what is refused."""

import copy

import pytest
import torch.distributed as dist

from specc.runtime import Axis, Mesh
from specc.runtime.checkpoint_plan import ranks_places


def test_single_has_every_axis_of_size_one() -> None:
    mesh = Mesh.single()
    for name in ("pp", "dp_replicate", "dp_shard", "ep", "cp", "tp", "dp"):
        axis = getattr(mesh, name)
        assert (axis.name, axis.size, axis.rank, axis.group) == (name, 1, 0, None)
    assert (mesh.size, mesh.rank) == (1, 0)


def test_deepcopy_and_equality() -> None:
    mesh = Mesh.single()
    assert copy.deepcopy({"mesh": mesh})["mesh"] is mesh
    assert mesh == Mesh.single()


def test_launch_without_process_group_is_refused() -> None:
    with pytest.raises(RuntimeError, match="needs a process group"):
        Mesh.launch()


def test_axis_refuses_a_rank_outside_and_a_missing_group() -> None:
    with pytest.raises(ValueError, match="rank 2 is not on axis 'tp', which has 2 ranks"):
        Axis("tp", 2, 2)
    with pytest.raises(ValueError, match="'tp' has 2 ranks and no process group"):
        Axis("tp", 2, 0)


def _layout(tp: int) -> tuple[int, ...]:
    mesh = Mesh.launch(tp=tp, sequence_parallel=True)
    assert mesh.rank == dist.get_rank()
    assert mesh.size == dist.get_world_size()
    assert mesh.sequence_parallel == (tp > 1)
    assert mesh.fsdp_mesh is not None and mesh.fsdp_mesh.size() == mesh.dp.size
    assert dist.get_world_size(mesh.tp.group) == mesh.tp.size
    return (mesh.dp.size, mesh.dp.rank, mesh.tp.size, mesh.tp.rank)


def test_launch_puts_tp_innermost(ranks) -> None:
    assert ranks(4, _layout, 2) == [(2, 0, 2, 0), (2, 0, 2, 1), (2, 1, 2, 0), (2, 1, 2, 1)]
    assert ranks(4, _layout, 4) == [(1, 0, 4, r) for r in range(4)]
    assert ranks(1, _layout, 1) == [(1, 0, 1, 0)]


def _replicated(cp: int, dp_replicate: int) -> tuple[tuple[int, ...], list[int], list[int]]:
    mesh = Mesh.launch(cp=cp, dp_replicate=dp_replicate, recompute_core_attn=True, loss_chunks=4)
    assert mesh.recompute_core_attn and mesh.loss_chunks == 4
    fsdp = mesh.fsdp_mesh
    assert fsdp is not None and fsdp.mesh_dim_names is not None
    assert fsdp.mesh_dim_names[-1] == "fsdp"
    assert (fsdp.mesh_dim_names[0] == "dp_replicate") == (dp_replicate > 1)
    groups = (fsdp.get_group("fsdp"), mesh.dp_cp.group)
    shards, tokens = (dist.get_process_group_ranks(group) for group in groups)
    return tuple(fsdp.shape), shards, tokens


def test_fsdp_shards_over_what_a_copy_has(ranks) -> None:
    """dp_shard x cp flattened, copies outermost."""
    everyone = [0, 1, 2, 3]
    assert ranks(4, _replicated, 4, 1) == [((4,), everyone, everyone)] * 4
    assert ranks(4, _replicated, 2, 1) == [((4,), everyone, everyone)] * 4
    copies = [((2, 2), [0, 1], everyone)] * 2 + [((2, 2), [2, 3], everyone)] * 2
    assert ranks(4, _replicated, 2, 2) == copies
    assert ranks(4, _replicated, 1, 2) == copies
    assert ranks(4, _replicated, 1, 4) == [((4, 1), [rank], everyone) for rank in range(4)]


def _refusals() -> None:
    with pytest.raises(ValueError, match="tp=3 does not divide the 2 processes"):
        Mesh.launch(tp=3)
    with pytest.raises(ValueError, match="tp=1 x dp=3 is 3 processes, but 2 were started"):
        Mesh.launch(tp=1, dp=3)
    with pytest.raises(ValueError, match="dp_replicate=3 does not divide dp=2"):
        Mesh.launch(dp_replicate=3)
    with pytest.raises(ValueError, match="'ring' is not one of all_gather, p2p, a2a"):
        Mesh.launch(cp=2, cp_comm_type="ring")
    with pytest.raises(ValueError, match="pp=4 does not divide the 2 processes"):
        Mesh.launch(pp=4)
    with pytest.raises(ValueError, match="ep=2 x etp=2 does not divide the 2 processes"):
        Mesh.launch(tp=2, ep=2)  # etp left out is tp
    with pytest.raises(ValueError, match="ep=2 x etp=1 does not divide the 1 processes"):
        Mesh.launch(dp_replicate=2, ep=2)
    with pytest.raises(ValueError, match="capacity_scope='expert' is not one of micro_batch, rank"):
        Mesh.launch(capacity_scope="expert")
    with pytest.raises(ValueError, match="'flex' is not one of alltoall, allgather"):
        Mesh.launch(moe_token_dispatcher_type="flex")


def test_launch_refuses_what_does_not_fit(ranks) -> None:
    ranks(2, _refusals)


def _expert_axes(degrees: dict[str, int]) -> dict[str, list[int]]:
    mesh = Mesh.launch(**degrees)
    found = {}
    for name in ("ep", "etp", "edp", "tp_cp", "dp_cp_tp"):
        axis = getattr(mesh, name)
        found[name] = dist.get_process_group_ranks(axis.group)
        assert axis.size == len(found[name]) and found[name][axis.rank] == mesh.rank
    assert mesh.expert_fsdp_mesh is not None
    found["shards"] = mesh.expert_fsdp_mesh.mesh.flatten().tolist()
    # A checkpoint's plan says the same of every rank without a process group.
    place = ranks_places(mesh)[mesh.rank]
    assert (place["ep"], place["etp"]) == (mesh.ep.rank, mesh.etp.rank)
    assert place["edp_shard"] == mesh.expert_fsdp_mesh.get_local_rank("edp_shard")
    return found


def test_experts_divide_the_ranks_of_a_stage_anew(ranks) -> None:
    """etp innermost, then ep; their copies are as far apart as ep x etp."""
    everyone = [0, 1, 2, 3]
    rank1 = ranks(4, _expert_axes, {"tp": 2, "ep": 2, "etp": 1})[1]
    assert (rank1["ep"], rank1["etp"], rank1["edp"]) == ([0, 1], [1], [1, 3])
    assert (rank1["tp_cp"], rank1["dp_cp_tp"], rank1["shards"]) == ([0, 1], everyone, [1, 3])
    rank1 = ranks(4, _expert_axes, {"ep": 2, "etp": 2})[1]
    assert (rank1["ep"], rank1["etp"], rank1["edp"]) == ([1, 3], [0, 1], [1])
    rank1 = ranks(4, _expert_axes, {"tp": 2})[1]
    assert (rank1["ep"], rank1["etp"], rank1["edp"]) == ([1], [0, 1], [1, 3])
    rank1 = ranks(4, _expert_axes, {"pp": 2, "ep": 2})[1]
    assert (rank1["ep"], rank1["edp"], rank1["dp_cp_tp"]) == ([0, 1], [1], [0, 1])
    rank1 = ranks(4, _expert_axes, {"dp_replicate": 2, "ep": 2})[1]
    assert (rank1["ep"], rank1["edp"], rank1["shards"]) == ([0, 1], [1, 3], [1, 3])
