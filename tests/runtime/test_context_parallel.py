"""Attention over cp: every kind of exchange against one process, and against the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from specc.runtime.attention import attention
from specc.runtime.mesh import CP_COMM_TYPES, Mesh
from specc.runtime.positions import Positions

B, S, D = 2, 16, 8
STARTS = torch.tensor([[0] * 5 + [5] * 6 + [11] * 5, [0] + [1] * 2 + [3] * 13])

OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {},
    "not causal": {"causal": False},
    "window of 1": {"window": 1},
    "window": {"window": 5},
    "window, not causal": {"window": 5, "causal": False},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": True},
    "documents": {"starts": STARTS},
    "documents, not causal": {"starts": STARTS, "causal": False},
    "scale": {"scale": 0.7},
    "all": {"window": 6, "softcap": 3.0, "sinks": True, "starts": STARTS},
    "all, not causal": {
        "window": 6,
        "softcap": 3.0,
        "sinks": True,
        "starts": STARTS,
        "causal": False,
    },
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def run(
    mesh: Mesh,
    options: dict[str, Any],
    heads: tuple[int, int] = (4, 2),
    length: int = S,
    compiled: bool = False,
) -> list[Tensor]:
    """Output and gradients of q, k, v (and sinks) of this rank."""
    n, g = heads
    options = dict(options)
    starts = options.pop("starts", None)
    ids = torch.zeros(B, length // mesh.cp.size, dtype=torch.int64)
    positions = Positions.of(ids, mesh, starts)
    own = [drawn(seed, B, length, h, D)[:, positions.places] for seed, h in enumerate((n, g, g, n))]
    leaves = [x.requires_grad_() for x in own[:3]]
    if options.pop("sinks", False):
        leaves.append(drawn(9, n).requires_grad_())
        options["sinks"] = leaves[3]
    call = torch.compile(attention, fullgraph=True, backend="aot_eager") if compiled else attention
    y = call(*leaves[:3], positions, mesh, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, own[3])]


def whole(parts: list[list[Tensor]], cp: int, length: int = S) -> list[Tensor]:
    """Every rank's places back in order; the gradients of sinks are summed."""
    results = []
    for i, pieces in enumerate(zip(*parts, strict=True)):
        if i == 4:
            results.append(sum(pieces[1:], pieces[0]))
            continue
        result = torch.full((B, length, *pieces[0].shape[2:]), torch.nan)
        for rank, piece in enumerate(pieces):
            size = length // (2 * cp)
            result[:, rank * size : (rank + 1) * size] = piece[:, :size]
            last = 2 * cp - 1 - rank
            result[:, last * size : (last + 1) * size] = piece[:, size:]
        results.append(result)
    return results


def close(a: Tensor, b: Tensor) -> bool:
    # DESIGN: 1e-5 of the largest; a gradient that cancels to zero is rounding of terms of about 1.
    return bool((a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=0.3))


def _many(comm: str, cases: list[dict[str, Any]], heads: tuple[int, int]) -> list[list[Tensor]]:
    mesh = Mesh.launch(cp=dist.get_world_size(), cp_comm_type=comm)
    return [run(mesh, case, heads) for case in cases]


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("comm", CP_COMM_TYPES)
def test_every_option_is_as_in_one_process(
    ranks: Any, comm: str, cp: int, heads: tuple[int, int]
) -> None:
    by_rank = ranks(cp, _many, comm, list(OPTIONS.values()), heads)
    for i, (name, options) in enumerate(OPTIONS.items()):
        got = whole([results[i] for results in by_rank], cp)
        expected = run(Mesh.single(), options, heads)
        for what, a, b in zip(("y", "dq", "dk", "dv", "dsinks"), got, expected, strict=False):
            assert close(a, b), f"{name}: {what} is off by {(a - b).abs().max()}"
            assert b.abs().max() > 0 or name == "window of 1"  # one key: its weight is always 1


def _compiled(comm: str) -> None:
    cp = dist.get_world_size()
    for name, options, recompute in (
        ("causal", OPTIONS["causal"], False),
        ("all and dropout", {**OPTIONS["all"], "dropout": 0.5}, True),
    ):
        mesh = Mesh.launch(cp=cp, cp_comm_type=comm, recompute_core_attn=recompute)
        torch._dynamo.reset()
        torch.manual_seed(3)
        eager = run(mesh, options)
        torch.manual_seed(3)
        for a, b in zip(run(mesh, options, compiled=True), eager, strict=True):
            assert close(a, b), name


@pytest.mark.parametrize("comm", CP_COMM_TYPES)
def test_compiles_in_one_graph(ranks: Any, comm: str) -> None:
    ranks(2, _compiled, comm)


def _compiled_again() -> None:
    """Two places a piece: of four ranks some see nothing of what the ring brings last."""
    mesh = Mesh.launch(cp=4, cp_comm_type="p2p", recompute_core_attn=True)
    options = OPTIONS["window"] | {"window": 2}
    eager = run(mesh, options)
    for a, b in zip(run(mesh, options, compiled=True), eager, strict=True):
        assert close(a, b)


def test_a_compiled_recompute_turns_the_whole_ring(ranks: Any) -> None:
    ranks(4, _compiled_again)


class Collectives(TorchDispatchMode):
    """Names and sent elements of the collectives that run inside."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "_c10d_functional" and "wait" not in func.__name__:
            self.seen.append((func.__name__.split(".")[0], args[0].numel()))
        return func(*args, **(kwargs or {}))


def _counted(comm: str, options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    cp = dist.get_world_size()
    mesh = Mesh.launch(cp=cp, cp_comm_type=comm)
    positions = Positions.of(torch.zeros(B, S // cp, dtype=torch.int64), mesh)
    q, k, v = (torch.randn(B, S // cp, h, D, requires_grad=True) for h in (4, 2, 2))
    with Collectives() as forward:
        y = attention(q, k, v, positions, mesh, **options)
    with Collectives() as backward:
        y.sum().backward()  # type: ignore[no-untyped-call]
    return forward.seen, backward.seen


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("options", [{}, {"window": 2}])
def test_collectives_are_those_of_the_docstring(
    ranks: Any, cp: int, options: dict[str, Any]
) -> None:
    tokens = B * S // cp
    kv = tokens * 2 * 2 * D
    ring = "all_to_all_single"
    queries = tokens * 4 * D
    every_head = queries + kv * (1 if cp == 2 else 2)  # two key heads for four ranks: repeated
    expected = {
        "all_gather": (
            [("all_gather_into_tensor", kv)],
            [("all_gather_into_tensor", kv), ("reduce_scatter_tensor", cp * kv)],
        ),
        "p2p": ([(ring, kv)] * (cp - 1), [(ring, kv)] * (2 * cp - 1)),
        "a2a": ([(ring, every_head), (ring, queries)], [(ring, queries), (ring, every_head)]),
    }
    for comm in CP_COMM_TYPES:
        assert ranks(cp, _counted, comm, options) == [expected[comm]] * cp


def _dropped(tp: int, cp: int, comm: str, recompute: bool) -> list[Tensor]:
    """Output and gradients; the heads that tp cuts, and the places that cp cuts, of a whole."""
    mesh = Mesh.launch(tp=tp, cp=cp, cp_comm_type=comm, recompute_core_attn=recompute)
    positions = Positions.of(torch.zeros(B, S // cp, dtype=torch.int64), mesh)
    torch.manual_seed(7)
    leaves = []
    for seed in range(4):
        mine = drawn(seed, B, S, 4, D).chunk(tp, 2)[mesh.tp.rank][:, positions.places]
        leaves.append(mine.clone().requires_grad_())
    y = attention(leaves[0], leaves[1], leaves[2], positions, mesh, dropout=0.5)
    other = attention(leaves[0], leaves[1], leaves[2], positions, mesh, dropout=0.5)
    assert not torch.equal(y, other)
    return [y.detach(), *torch.autograd.grad(y, leaves[:3], leaves[3]), torch.rand(4)]


def test_dropout_is_the_same_at_every_layout(ranks: Any) -> None:
    by_head = ranks(2, _dropped, 2, 1, "p2p", False)
    expected = [torch.cat(pieces, 2) for pieces in zip(*(r[:4] for r in by_head), strict=True)]
    assert not close(expected[0], run(Mesh.single(), {}, (4, 4))[0])
    for comm in CP_COMM_TYPES:
        for recompute in (False, True):
            parts = ranks(2, _dropped, 1, 2, comm, recompute)
            assert torch.equal(parts[0][4], parts[1][4])  # the generators stay alike
            for a, b in zip(whole([part[:4] for part in parts], 2), expected, strict=True):
                assert close(a, b)


def _recomputed(comm: str) -> None:
    cp = dist.get_world_size()
    for name, options in OPTIONS.items():
        results, saved = [], []
        for again in (False, True):
            mesh = Mesh.launch(cp=cp, cp_comm_type=comm, recompute_core_attn=again)
            held: list[int] = []

            def keep(x: Tensor, held: list[int] = held) -> Tensor:
                held.append(x.numel())
                return x

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                results.append(run(mesh, options))
            saved.append(sorted(x for x in held if x))
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        places = B * S // cp
        q, k = places * 4 * D, places * 2 * D
        assert saved[1] == sorted([q, k, k, *([4] if options.get("sinks") else [])])
        if comm != "a2a" and name == "causal":
            assert saved[0] == sorted([q, k, k, q, places * 4])  # q, k, v, y, log-sum-exp


@pytest.mark.parametrize("comm", CP_COMM_TYPES)
def test_recomputed_attention_is_the_same(ranks: Any, comm: str) -> None:
    ranks(2, _recomputed, comm)


def _refusals() -> None:
    mesh = Mesh.launch(cp=2, cp_comm_type="a2a")
    positions = Positions.of(torch.zeros(1, 4, dtype=torch.int64), mesh)
    q, k = torch.ones(1, 4, 3, 8), torch.ones(1, 4, 1, 8)
    with pytest.raises(ValueError, match=r"3 query heads .* cp=2.*all_gather and p2p cut no heads"):
        attention(q, k, k, positions, mesh)
    with pytest.raises(NotImplementedError, match=r"mask tensor .* cp=2"):
        attention(k, k, k, positions, mesh, mask=torch.zeros(4, 4) > 0)
    short = Positions(positions.places, positions.places, torch.zeros(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"starts has shape \[1, 4\].*cp=2 .* \[1, 8\]"):
        attention(k, k, k, short, mesh)


def test_what_cp_does_not_do_is_refused(ranks: Any) -> None:
    ranks(2, _refusals)


def definition(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, window: int | None) -> Tensor:
    """Causal attention in float64, place by place."""
    rows = []
    for place in range(q.shape[1]):
        first = starts[:, place] if window is None else starts[:, place].clamp(place - window + 1)
        sees = torch.arange(place + 1) >= first[:, None]  # [b, place + 1]
        keys = k[:, : place + 1].repeat_interleave(q.shape[2] // k.shape[2], 2)
        values = v[:, : place + 1].repeat_interleave(q.shape[2] // k.shape[2], 2)
        scores = (q[:, place, None] * keys).sum(-1) / q.shape[3] ** 0.5  # [b, place + 1, n]
        weights = scores.masked_fill(~sees[..., None], -torch.inf).softmax(1)
        rows.append((weights[..., None] * values).sum(1))
    return torch.stack(rows, 1)


@st.composite
def packed(draw: st.DrawFn, length: int) -> Tensor:
    """starts [B, length] of random documents."""
    rows = []
    for _ in range(B):
        begins = draw(st.sets(st.integers(1, length - 1), max_size=5)) | {0}
        rows.append([max(b for b in begins if b <= place) for place in range(length)])
    return torch.tensor(rows)


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_documents_and_windows_are_the_definition(ranks: Any, data: st.DataObject) -> None:
    comm = data.draw(st.sampled_from(CP_COMM_TYPES))
    length = data.draw(st.sampled_from([4, 8, 12, 20]))
    starts = data.draw(packed(length))
    window = data.draw(st.sampled_from([None, 1, 2, 3, 7]))
    heads = data.draw(st.sampled_from([(2, 1), (4, 2), (2, 2)]))
    options = {"starts": starts, "window": window}
    got = whole(ranks(2, _one, comm, options, heads, length), 2, length)
    leaves = [
        drawn(seed, B, length, h, D).double().requires_grad_()
        for seed, h in enumerate((heads[0], heads[1], heads[1]))
    ]
    y = definition(leaves[0], leaves[1], leaves[2], starts, window)
    grads = torch.autograd.grad(y, leaves, drawn(3, B, length, heads[0], D).double())
    for a, b in zip(got, (y.detach(), *grads), strict=True):
        assert close(a.double(), b)


def _one(comm: str, options: Any, heads: tuple[int, int], length: int) -> list[Tensor]:
    return run(Mesh.launch(cp=2, cp_comm_type=comm), options, heads, length)
