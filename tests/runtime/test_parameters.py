"""Global offsets: the parts that ranks hold make up each tensor, once, at every layout."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor.debug import (
    _clear_sharding_prop_cache,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from specc.runtime import (
    ColumnParallelLinear,
    LocalPart,
    Mesh,
    VocabParallelEmbedding,
    local_part,
    materialize,
    parameter_table,
    shard,
)
from specc.runtime.checkpoint_index import Shard, overlap
from specc.runtime.checkpoint_plan import Planner, ranks_places
from specc.runtime.parameters import Division, divisions, part_of

Ranks = Callable[..., list[Any]]


class Vocabulary(nn.Module):
    """An embedding and an output layer, cut over tp into rows that do not come out even."""

    def __init__(self, size: int, mesh: Mesh) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(size, 2, mesh)
        self.output = ColumnParallelLinear(2, size, mesh, bias=True, pad=True)


def build(size: int, mesh: Mesh, device: str = "cpu") -> nn.Module:
    def wrap(model: nn.Module) -> None:
        if mesh.dp_cp.size > 1:
            shard(model, mesh, dtype=torch.float32)

    return materialize(lambda: Vocabulary(size, mesh), mesh, seed=0, device=device, wrap=wrap)


def parts(size: int, mesh: Mesh) -> dict[str, LocalPart]:
    """This rank's part of each parameter."""
    model = build(size, mesh)
    table = parameter_table(model)
    return {
        name: local_part(table[name], parameter, mesh)
        for name, parameter in model.named_parameters()
    }


def launched_parts(size: int, **degrees: Any) -> dict[str, LocalPart]:
    return parts(size, Mesh.launch(**degrees))


def rows_held(found: list[LocalPart]) -> list[int]:
    """How many ranks hold each row."""
    end = max(part.offset[0] + part.extent[0] for part in found)
    held = [0] * end
    for part in found:
        for row in range(part.offset[0], part.offset[0] + part.extent[0]):
            held[row] += 1
    return held


def test_13_entries_at_tp_2_x_dp_2(ranks: Ranks) -> None:
    found = ranks(4, functools.partial(launched_parts, 13, tp=2))
    for name in ("embedding.weight", "output.weight", "output.bias"):
        # tp: 7 rows and 6 with one of padding; FSDP cuts both into 4 and 3. tp is innermost.
        rows = [(part[name].offset[0], part[name].extent[0]) for part in found]
        assert rows == [(0, 4), (7, 4), (4, 3), (11, 2)]


@pytest.fixture
def fake_rank() -> Iterator[Callable[..., Mesh]]:
    """``fake_rank(3, 8, tp=4)``: the mesh of rank 3 of 8, of which only this one runs."""

    def stop() -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
            # DTensor keeps results by layout, and they know the groups of the mesh that was.
            _clear_sharding_prop_cache()

    def start(rank: int, size: int, **degrees: Any) -> Mesh:
        stop()
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        return Mesh.launch(**degrees)

    yield start
    stop()


def test_11_entries_at_tp_4_x_dp_2(fake_rank: Callable[..., Mesh]) -> None:
    found = [parts(11, fake_rank(rank, 8, tp=4)) for rank in range(8)]
    rows = [(part["output.weight"].offset[0], part["output.weight"].extent[0]) for part in found]
    # tp: rows of 3, the last of them 2; FSDP: 2 and 1, and the padding row is the last one's.
    assert rows == [(0, 2), (3, 2), (6, 2), (9, 2), (2, 1), (5, 1), (8, 1), (11, 0)]
    assert rows_held([part["embedding.weight"] for part in found]) == [1] * 11


@pytest.mark.parametrize(
    ("size", "degrees"),
    [
        (4, {"tp": 2}),
        (8, {"tp": 8}),
        (12, {"tp": 3, "dp_replicate": 2}),
        (64, {"tp": 4, "cp": 2, "dp_replicate": 4}),
        (1024, {"tp": 8}),
        (3072, {"tp": 2, "cp": 3, "dp_replicate": 8}),
    ],
)
def test_50257_entries_at_any_size(
    fake_rank: Callable[..., Mesh], size: int, degrees: dict[str, int]
) -> None:
    """What a rank says of its own part is what all others work out that it holds."""
    for rank in {0, 1, size // 2 + 1, size - 1}:
        mesh = fake_rank(rank, size, **degrees)
        model = build(50257, mesh, device="meta")
        parameter, record = model.output.weight, parameter_table(model)["output.weight"]
        cuts = divisions(record, parameter, mesh)
        everyone = [
            part_of(record.shape, [(cut, place[cut.axis]) for cut in cuts])
            for place in ranks_places(mesh)
        ]
        assert len(everyone) == size
        assert everyone[rank] == local_part(record, parameter, mesh)
        copies = degrees.get("dp_replicate", 1)
        begins = sorted({(p.offset[0], p.extent[0]) for p in everyone if p.extent[0]})
        assert sum(extent for _, extent in begins) == 50257
        assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(begins))
        assert all(everyone.count(p) == copies for p in everyone[:8] if p.extent[0])


cuts_of_dims = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 5), st.sampled_from(["tp", "fsdp"])), max_size=3
)


@given(shape=st.tuples(st.integers(0, 23), st.integers(1, 7)), cuts=cuts_of_dims)
def test_parts_never_overlap_and_leave_nothing_out(
    shape: tuple[int, int], cuts: list[tuple[int, int, str]]
) -> None:
    """Whatever is cut, in whatever order: every entry of the tensor lies in one part."""
    held = torch.zeros(shape, dtype=torch.int64)
    found: list[list[tuple[Division, int]]] = [[]]
    for dim, count, axis in cuts:
        division = Division(dim, count, axis)
        found = [[*above, (division, index)] for above in found for index in range(count)]
    for chosen in found:
        part = part_of(shape, chosen)
        if all(part.extent):
            part.of(held).add_(1)
    assert (held == 1).all()


box = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 5), st.integers(0, 5))


@given(a=box, b=box)
def test_an_overlap_is_what_both_parts_have(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int]
) -> None:
    marks = torch.zeros(12, 12)
    first, second = LocalPart(a[:2], a[2:]), LocalPart(b[:2], b[2:])
    first.of(marks).add_(1)
    second.of(marks).add_(1)
    common = overlap(first, second)
    if common is None:
        assert not (marks == 2).any()
    else:
        assert (common.of(marks) == 2).all()
        assert (marks == 2).sum() == common.extent[0] * common.extent[1]


def plan(**degrees: Any) -> tuple[Shard, ...]:
    mesh = Mesh.launch(**degrees)
    model = build(13, mesh)
    table = parameter_table(model)
    tensors = {name: (p, table[name]) for name, p in model.named_parameters()}
    return Planner(mesh).assign(tensors)["embedding.weight"]


def test_all_ranks_make_the_same_plan(ranks: Ranks) -> None:
    first, *others = ranks(4, functools.partial(plan, tp=2))
    assert others == [first] * 3
    assert [shard.writer for shard in first] == [0, 1, 2, 3]


def test_a_mesh_laid_out_otherwise_is_refused(ranks: Ranks) -> None:
    ranks(2, refused_plan)


def refused_plan() -> None:
    mesh = Mesh.launch(tp=2)
    model = build(13, mesh)
    table = parameter_table(model)
    planner = Planner(mesh)
    planner._places.reverse()
    with pytest.raises(RuntimeError, match="by the mesh's sizes it would not"):
        planner.assign({n: (p, table[n]) for n, p in model.named_parameters()})
