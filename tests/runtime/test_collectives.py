"""Collectives: values, and that each backward is the true adjoint; the pool's own errors."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from workers import RankError

from specc.runtime import Axis, Mesh, all_gather, all_reduce, all_to_all, reduce_scatter
from specc.runtime.collectives import all_reduce_max


def _mine(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(dist.get_rank())
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _apply(name: str, x: Tensor, axis: Axis) -> Tensor:
    if name == "all_reduce":
        return all_reduce(x, axis)
    if name == "all_to_all":
        return all_to_all(x, axis)
    if name == "uneven_all_to_all":  # rank r sends r rows to rank 0 and the rest to rank 1
        r = axis.rank
        sent = [r + 1, x.shape[0] - r - 1]
        received = [1, 2] if r == 0 else [x.shape[0] - 1, x.shape[0] - 2]
        return all_to_all(x, axis, received, sent)
    kind, dim = name.split(":")
    return (all_gather if kind == "gather" else reduce_scatter)(x, int(dim), axis)


CASES = [
    "all_reduce",
    "all_to_all",
    *(f"{k}:{d}" for k in ("gather", "scatter") for d in (0, 1, -1)),
]


def _adjoint(name: str) -> tuple[float, float]:
    """<f(x), y> summed over ranks, and <x, f'(y)>: equal for a linear f and its adjoint."""
    axis = Mesh.launch(tp=dist.get_world_size()).tp
    x = _mine((4, 4, 8)).requires_grad_()
    out = _apply(name, x, axis)
    y = _mine(tuple(out.shape)).flip(0)
    (dx,) = torch.autograd.grad(out, x, y)
    return float((out * y).sum()), float((x * dx).sum())


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_backward_is_the_adjoint(ranks, name: str, size: int) -> None:
    pairs = ranks(size, _adjoint, name)
    left, right = (sum(p[i] for p in pairs) for i in (0, 1))
    assert left == pytest.approx(right, rel=1e-10)
    assert abs(left) > 1e-3


def test_uneven_exchange(ranks) -> None:
    pairs = ranks(2, _adjoint, "uneven_all_to_all")
    assert sum(p[0] for p in pairs) == pytest.approx(sum(p[1] for p in pairs), rel=1e-10)


def _values() -> None:
    axis = Mesh.launch(tp=2).tp
    everyone = [torch.randn(4, 6, generator=torch.Generator().manual_seed(r)) for r in range(2)]
    x = everyone[axis.rank]
    assert torch.equal(all_reduce(x, axis), everyone[0] + everyone[1])
    assert torch.equal(all_reduce_max(x, axis), torch.maximum(*everyone))
    for dim in (0, 1):
        assert torch.equal(all_gather(x, dim, axis), torch.cat(everyone, dim))
        part = (everyone[0] + everyone[1]).chunk(2, dim)[axis.rank]
        assert torch.equal(reduce_scatter(x, dim, axis), part)
    assert torch.equal(all_to_all(x, axis), torch.cat([e.chunk(2)[axis.rank] for e in everyone]))
    with pytest.raises(ValueError, match="3 entries, which the 2 ranks of tp do not divide"):
        reduce_scatter(x[:3], 0, axis)
    with pytest.raises(ValueError, match="3 rows cannot go in equal blocks to the 2 ranks of tp"):
        all_to_all(x[:3], axis)


def test_values(ranks) -> None:
    ranks(2, _values)


def test_one_rank_hands_back_its_input() -> None:
    x, axis = torch.randn(2, 3), Axis("tp")
    assert all_reduce(x, axis) is all_gather(x, 0, axis) is reduce_scatter(x, 0, axis) is x
    assert all_to_all(x, axis) is x


def _compiled() -> None:
    axis = Mesh.launch(tp=2).tp

    def f(x: Tensor) -> Tensor:
        y = reduce_scatter(all_gather(x.sin(), 1, axis).cos(), 1, axis)
        return all_reduce(y * x, axis).sum()

    x = _mine((4, 6)).requires_grad_()
    (expected,) = torch.autograd.grad(f(x), x)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    (got,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(got, expected)


def test_compile_without_a_graph_break(ranks) -> None:
    ranks(2, _compiled)


def _fails_on(rank: int) -> int:
    if dist.get_rank() == rank:
        raise LookupError("nothing here")
    dist.barrier()
    return os.getpid()


def _sleeps() -> None:
    time.sleep(60)


def test_a_failing_rank_is_reported_and_the_pool_lives_on(ranks) -> None:
    with pytest.raises(RankError, match=r"rank 1 of 2:[\s\S]*LookupError: nothing here"):
        ranks(2, _fails_on, 1)
    assert len(set(ranks(2, _fails_on, 7))) == 2


def test_a_hanging_rank_is_reported_with_its_stack(ranks) -> None:
    with pytest.raises(RankError, match=r"\[0, 1\] of 2 were not done after 0.5 s[\s\S]*_sleeps"):
        ranks(2, _sleeps, timeout=0.5)
