"""Positions: which places a rank sees, in one process and under sequence parallel."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch.distributed import ProcessGroup

from specc.runtime.mesh import Axis, Mesh
from specc.runtime.positions import Positions


def mesh_of(tp: int, rank: int, sequence_parallel: bool) -> Mesh:
    """A mesh whose group is never called: positions need no communication."""
    group = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
    return Mesh(tp=Axis("tp", tp, rank, group), sequence_parallel=sequence_parallel)


def test_one_process_holds_every_position() -> None:
    positions = Positions.of(torch.zeros(2, 5, dtype=torch.int64), Mesh.single())
    assert positions.ids.tolist() == positions.local_ids.tolist() == [0, 1, 2, 3, 4]
    assert positions  # a page writes `positions or Positions.of(...)`


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_sequence_parallel_cuts_between_the_layers_only(sequence_parallel: bool) -> None:
    tokens = torch.zeros(3, 8, dtype=torch.int64)
    parts = [Positions.of(tokens, mesh_of(4, rank, sequence_parallel)) for rank in range(4)]
    assert all(part.ids.tolist() == list(range(8)) for part in parts)
    together = torch.cat([part.local_ids for part in parts]).tolist()
    assert together == (list(range(8)) if sequence_parallel else 4 * list(range(8)))


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_of_hidden_agrees_with_of(sequence_parallel: bool) -> None:
    for rank in range(2):
        mesh = mesh_of(2, rank, sequence_parallel)
        length = 3 if sequence_parallel else 6
        seen = Positions.of_hidden(torch.zeros(2, length, 7), mesh)
        made = Positions.of(torch.zeros(2, 6, dtype=torch.int64), mesh)
        assert torch.equal(seen.ids, made.ids) and torch.equal(seen.local_ids, made.local_ids)


def test_a_length_that_tp_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tp=4 equal parts, and 10 positions"):
        Positions.of(torch.zeros(1, 10, dtype=torch.int64), mesh_of(4, 0, True))
    with pytest.raises(ValueError, match=r"shape \[1, 3\]"):
        Positions(torch.zeros(1, 3, dtype=torch.int64), torch.arange(3))
    with pytest.raises(ValueError, match="float32"):
        Positions(torch.arange(3), torch.zeros(3))


def test_positions_are_an_argument_of_a_compiled_function() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def double(positions: Positions) -> torch.Tensor:
        return positions.ids * 2 + positions.local_ids

    positions = Positions.of(torch.zeros(1, 4, dtype=torch.int64), Mesh.single())
    assert double(positions).tolist() == [0, 3, 6, 9]
