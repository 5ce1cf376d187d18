"""Column and row parallel linear: values, gradients, collectives and what is saved."""

from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    RowParallelLinear,
    all_gather,
    all_reduce,
    full_tensors,
    materialize,
    sum_replicated_gradients,
)

B, S, H, FFN, OUT = 2, 8, 12, 16, 20


class Pair(nn.Module):
    """Column into row, then a column that gathers its output."""

    def __init__(self, mesh: Mesh, bias: bool, vocabulary: int = OUT) -> None:
        super().__init__()
        self.up = ColumnParallelLinear(H, FFN, mesh, bias=bias, unit=2, init_std=0.3)
        self.down = RowParallelLinear(FFN, H, mesh, bias=bias, init_std=0.3)
        self.head = ColumnParallelLinear(
            H, vocabulary, mesh, bias=bias, gather_output=True, pad=True, init_std=0.3
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.down(F.gelu(self.up(x))))


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(B, S, H, generator=generator),
        torch.randn(B, S, 32, generator=generator),
    )


def _built(mesh: Mesh, bias: bool, vocabulary: int) -> Pair:
    model = materialize(lambda: Pair(mesh, bias, vocabulary), mesh)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # so that a bias added twice shows
            parameter.data.fill_(0.5)
    return model


def _results(mesh: Mesh, bias: bool, vocabulary: int) -> dict[str, Tensor]:
    model = _built(mesh, bias, vocabulary)
    whole, weight = _batch()
    x = whole
    if mesh.sequence_parallel:
        x = x.chunk(mesh.tp.size, 1)[mesh.tp.rank].contiguous()
    x.requires_grad_()
    y = model(x)
    (y * weight[..., :vocabulary]).sum().div(mesh.tp.size).backward()
    sum_replicated_gradients(model, mesh)
    assert x.grad is not None
    # Without sequence parallel x's gradient is a part on each rank: its producer sums it.
    dx = all_gather(x.grad, 1, mesh.tp) if mesh.sequence_parallel else all_reduce(x.grad, mesh.tp)
    return {"y": y.detach(), "dx": dx, **full_tensors(model, mesh, grads=True)}


def _compare(sequence_parallel: bool, bias: bool, vocabulary: int) -> None:
    mesh = Mesh.launch(tp=dist.get_world_size(), sequence_parallel=sequence_parallel)
    got, expected = _results(mesh, bias, vocabulary), _results(Mesh.single(), bias, vocabulary)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name].shape == value.shape, name
        assert (got[name] - value).abs().max() <= 1e-5 * value.abs().max(), name
        assert value.abs().max() > 0


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize(("bias", "vocabulary"), [(False, OUT), (True, OUT), (True, 13), (True, 5)])
def test_equals_one_process(
    ranks, size: int, sequence_parallel: bool, bias: bool, vocabulary: int
) -> None:
    ranks(size, _compare, sequence_parallel, bias, vocabulary)


def test_one_process_is_plain_linear() -> None:
    mesh = Mesh.single()
    model = materialize(lambda: Pair(mesh, True), mesh)
    x, _ = _batch()
    assert torch.equal(model.up(x), F.linear(x, model.up.weight, model.up.bias))
    assert torch.equal(model.down(model.up(x)), F.linear(model.up(x), *model.down.parameters()))


class Collectives(TorchDispatchMode):
    """Counts collectives by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace == "_c10d_functional" and name != "wait_tensor":
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


def _counted(sequence_parallel: bool) -> list[dict[str, int]]:
    mesh = Mesh.launch(tp=2, sequence_parallel=sequence_parallel)
    model = materialize(lambda: Pair(mesh, True), mesh)
    counts = []
    for layer, width in ((model.up, H), (model.down, FFN // 2)):
        positions = S // 2 if sequence_parallel and layer is model.up else S
        x = torch.randn(B, positions, width, requires_grad=True)
        with Collectives() as forward:
            y = layer(x)
        with Collectives() as backward:
            y.sum().backward()
        counts += [dict(forward.seen), dict(backward.seen)]
    return counts


def test_collectives_are_those_of_the_docstrings(ranks) -> None:
    gather, scatter, reduce = "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"
    assert ranks(2, _counted, False)[0] == [{}, {}, {reduce: 1}, {reduce: 1}]
    assert ranks(2, _counted, True)[0] == [
        {gather: 1},
        {gather: 1, scatter: 1},
        {scatter: 1},
        {gather: 1},
    ]


def _saved() -> int:
    mesh = Mesh.launch(tp=2, sequence_parallel=True)
    model = materialize(lambda: Pair(mesh, False), mesh)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        model.up(torch.randn(B, S // 2, H, requires_grad=True))
    return sum(t.numel() for t in saved if t.untyped_storage() != model.up.weight.untyped_storage())


def test_column_saves_this_ranks_positions_only(ranks) -> None:
    assert ranks(2, _saved) == [B * S // 2 * H] * 2


def _compiled(sequence_parallel: bool) -> None:
    mesh = Mesh.launch(tp=2, sequence_parallel=sequence_parallel)
    model = materialize(lambda: Pair(mesh, True), mesh)
    x, _ = _batch()
    x = x.chunk(2, 1)[mesh.tp.rank].contiguous() if sequence_parallel else x

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients()
    model.compile(fullgraph=True, backend="aot_eager")
    for got, value in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(got, value)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_compiles_without_a_graph_break(ranks, sequence_parallel: bool) -> None:
    ranks(2, _compiled, sequence_parallel)


def test_weights_are_cast_to_the_input() -> None:
    mesh = Mesh.single()
    model = materialize(lambda: Pair(mesh, True), mesh)
    x = _batch()[0].bfloat16()
    assert model(x).dtype == torch.bfloat16
    assert model.up.weight.dtype == torch.float32


def _refusals() -> None:
    mesh = Mesh.launch(tp=4)
    with pytest.raises(ValueError, match="tp=4 does not divide 6 output features"):
        ColumnParallelLinear(4, 6, mesh)
    with pytest.raises(ValueError, match=r"4 does not divide 2 output units \(16 features in u.*8"):
        ColumnParallelLinear(4, 16, mesh, unit=8)
    with pytest.raises(ValueError, match="tp=4 does not divide 6 input features"):
        RowParallelLinear(6, 4, mesh)


def test_refuses_what_cannot_be_cut(ranks) -> None:
    ranks(4, _refusals)
    with pytest.raises(ValueError, match="10 output features are not a whole number of units of 4"):
        ColumnParallelLinear(4, 10, Mesh.single(), unit=4)
    with pytest.raises(ValueError, match="cannot keep units of 2 whole"):
        ColumnParallelLinear(4, 10, Mesh.single(), unit=2, pad=True)
