"""Dropout's mask: its statistics, and that no layout changes it."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from specc.runtime.dropout import Dropout, set_dropout_step
from specc.runtime.materialize import materialize
from specc.runtime.mesh import Axis, Mesh
from specc.runtime.positions import Positions

MESH = Mesh.single()
SHAPE = (4, 64, 128)  # b, s, h


class Two(nn.Module):
    def __init__(self, p: float = 0.25) -> None:
        super().__init__()
        self.first = Dropout(p, MESH)
        self.second = Dropout(p, MESH)


def masks(
    *, step: int = 0, seed: int = 0, first_sequence: int = 0, p: float = 0.25, name: str = "first"
) -> Tensor:
    """1.0 where kept, for a whole call in one process."""
    model = Two(p)
    set_dropout_step(model, seed=seed, step=step, first_sequence=first_sequence)
    x = torch.ones(SHAPE)
    y: Tensor = getattr(model, name)(x, Positions.of_hidden(x, MESH))
    assert ((y == 0) | (y == torch.tensor(1 / (1 - p)))).all()
    return (y != 0).float()


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1])


LIMIT = 5 / (SHAPE[0] * SHAPE[1] * SHAPE[2]) ** 0.5  # five standard deviations


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
def test_keep_rate(p: float) -> None:
    kept = masks(p=p)
    deviation = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < deviation * LIMIT
    for dims, count in (((1, 2), SHAPE[0]), ((0, 2), SHAPE[1]), ((0, 1), SHAPE[2])):
        rates = kept.mean(dims)  # of each sequence, position, feature
        each = deviation * (count / kept.numel()) ** 0.5
        assert (rates - (1 - p)).abs().max() < 5 * each
        if count > 10:  # as spread as independent draws are: neither all equal nor clustered
            assert 0.6 < float(rates.std() / each) < 1.5


def test_seed_step_module_and_sequence_draw_apart() -> None:
    kept = masks()
    others = [
        masks(seed=1),
        masks(step=1),
        masks(step=-1),
        masks(name="second"),
        masks(first_sequence=SHAPE[0]),
    ]
    for other in others:
        assert abs(correlation(kept, other)) < LIMIT
    assert torch.equal(kept, masks())


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_neighbours_draw_apart(dim: int) -> None:
    kept = masks()
    for shift in (1, 2, 3):
        assert abs(correlation(kept, kept.roll(shift, dim))) < LIMIT
    # And in pairs of dimensions: the parity of four corners is as random as one bit.
    half = masks(p=0.5) * 2 - 1
    for other in {0, 1, 2} - {dim}:
        corners = half * half.roll(1, dim) * half.roll(1, other) * half.roll((1, 1), (dim, other))
        assert abs(float(corners.mean())) < LIMIT


def test_no_two_rows_are_equal() -> None:
    rows = masks(p=0.5).flatten(0, 1)
    assert len({tuple(row) for row in rows.tolist()}) == SHAPE[0] * SHAPE[1]


def test_the_mask_is_the_same_however_the_batch_is_cut() -> None:
    whole = masks(step=3, first_sequence=8)
    group = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
    for rank in range(4):  # sequence parallel: this rank's positions
        mesh = Mesh(tp=Axis("tp", 4, rank, group), sequence_parallel=True)
        model = Two()
        set_dropout_step(model, seed=0, step=3, first_sequence=8)
        x = torch.ones(SHAPE[0], SHAPE[1] // 4, SHAPE[2])
        part = model.first(x, Positions.of_hidden(x, mesh)) != 0
        assert torch.equal(part.float(), whole.chunk(4, 1)[rank])
    for rank in range(2):  # context parallel: a rank's places, wherever documents begin
        mesh = Mesh(cp=Axis("cp", 2, rank, group))
        model = Two()
        set_dropout_step(model, seed=0, step=3, first_sequence=8)
        starts = torch.arange(SHAPE[1]).expand(SHAPE[0], -1) // 24 * 24
        ids = torch.zeros(SHAPE[0], SHAPE[1] // 2, dtype=torch.int64)
        positions = Positions.of(ids, mesh, starts)
        part = model.first(torch.ones(*ids.shape, SHAPE[2]), positions) != 0
        assert torch.equal(part.float(), whole[:, positions.places])
    for start in range(0, 4, 2):  # data parallel or accumulation: this call's sequences
        model = Two()
        set_dropout_step(model, seed=0, step=3, first_sequence=8 + start)
        x = torch.ones(2, *SHAPE[1:])
        part = model.first(x, Positions.of_hidden(x, MESH)) != 0
        assert torch.equal(part.float(), whole[start : start + 2])


def test_a_compiled_layer_follows_the_step_without_a_new_trace() -> None:
    model = Two()
    traces = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal traces
        traces += 1
        return graph

    x = torch.ones(SHAPE)
    positions = Positions.of_hidden(x, MESH)
    compiled = torch.compile(model.first, fullgraph=True, backend=backend)
    for step in range(3):
        set_dropout_step(model, seed=0, step=step, first_sequence=0)
        assert torch.equal(compiled(x, positions), model.first(x, positions))
    assert traces == 1


def test_gradient_is_the_mask_and_bfloat16_stays() -> None:
    model = Two()
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    x = torch.ones(SHAPE, dtype=torch.bfloat16, requires_grad=True)
    y = model.first(x, Positions.of_hidden(x, MESH))
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and torch.equal(y, cast(Tensor, x.grad))


def test_a_materialized_model_drops_alike() -> None:
    model = materialize(Two, MESH)
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    x = torch.ones(SHAPE)
    assert torch.equal((model.first(x, Positions.of_hidden(x, MESH)) != 0).float(), masks())


def test_eval_and_zero_drop_nothing_and_need_no_step() -> None:
    x = torch.ones(SHAPE)
    positions = Positions.of_hidden(x, MESH)
    assert Two().eval().first(x, positions) is x
    assert Two(0.0).first(x, positions) is x
    assert not Two().state_dict()


def test_misuse_is_refused() -> None:
    x = torch.ones(SHAPE)
    with pytest.raises(RuntimeError, match="begin_micro_batch"):
        Two().first(x, Positions.of_hidden(x, MESH))
    for p in (1.0, -0.1):
        with pytest.raises(ValueError, match=str(p)):
            Dropout(p, MESH)
    model = Two()
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    with pytest.raises(ValueError, match=r"32 local positions .* 64 places"):
        model.first(x, Positions.of_hidden(x[:, :32], MESH))
