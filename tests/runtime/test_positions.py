"""Positions: which places a rank sees, in one process and under sequence parallel."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch.distributed import ProcessGroup

from specc.runtime.documents import Documents
from specc.runtime.embedding import PositionEmbedding
from specc.runtime.mesh import Axis, Mesh
from specc.runtime.positions import Positions, own_places

GROUP = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
IDS = torch.zeros(2, 8, dtype=torch.int64)
STARTS = torch.tensor([[0, 0, 0, 3, 3, 5, 5, 5], [0, 1, 1, 1, 1, 1, 1, 1]])


def mesh_of(tp: int, rank: int, sequence_parallel: bool) -> Mesh:
    """A mesh whose group is never called: positions need no communication."""
    return Mesh(tp=Axis("tp", tp, rank, GROUP), sequence_parallel=sequence_parallel)


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


@pytest.mark.parametrize("cp", [2, 3, 4])
def test_cp_deals_the_places_out_from_both_ends(cp: int) -> None:
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    parts = []
    for rank in range(cp):
        mesh = Mesh(cp=Axis("cp", cp, rank, GROUP))
        made = Positions.of(tokens, mesh)
        assert torch.equal(made.places, Positions.of_hidden(torch.zeros(1, 4, 9), mesh).places)
        assert torch.equal(made.places, own_places(4 * cp, mesh))
        last = 4 * cp - 2 * rank
        assert made.places.tolist() == [2 * rank, 2 * rank + 1, last - 2, last - 1]
        parts.append(made.places)
    assert torch.cat(parts).sort().values.tolist() == list(range(4 * cp))


def test_a_length_that_cp_does_not_deal_out_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cp=2 deals a sequence out in 4 .* 6 positions"):
        Positions.of(torch.zeros(1, 3, dtype=torch.int64), Mesh(cp=Axis("cp", 2, 0, GROUP)))


def test_documents_restart_the_ids_and_not_the_places() -> None:
    positions = Positions.of(IDS, Mesh.single(), STARTS)
    assert positions.ids.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], [0, 0, 1, 2, 3, 4, 5, 6]]
    assert positions.places.tolist() == list(range(8))
    mesh = Mesh(cp=Axis("cp", 2, 1, GROUP), tp=Axis("tp", 2, 1, GROUP), sequence_parallel=True)
    cut = Positions.of(IDS[:, :4], mesh, STARTS)
    assert cut.places.tolist() == [2, 3, 4, 5] and cut.ids[0].tolist() == [2, 0, 1, 0]
    assert cut.local_places.tolist() == [4, 5] and cut.local_ids.tolist() == [[1, 0], [3, 4]]


def test_learned_positions_restart_too() -> None:
    mesh = Mesh(cp=Axis("cp", 2, 0, GROUP))
    table = PositionEmbedding(8, 3, mesh)
    weight = torch.arange(24.0).view(8, 3)
    table.weight = torch.nn.Parameter(weight)
    positions = Positions.of(IDS[:, :4], mesh, STARTS)
    assert positions.places.tolist() == [0, 1, 6, 7]
    assert torch.equal(table(positions), weight[torch.tensor([[0, 1, 1, 2], [0, 0, 5, 6]])])


def test_bounds_of_documents() -> None:
    documents = Positions.of(IDS, Mesh.single(), STARTS).documents
    assert documents is not None
    # Three documents at most, padded to four with empty ones at the end.
    assert documents.bounds.tolist() == [[0, 3, 5, 8, 8], [0, 1, 8, 8, 8]]
    assert documents.bounds.dtype == torch.int32 and documents.longest == 128
    long = torch.zeros(1, 1000, dtype=torch.int64)
    long[:, 300:] = 300
    assert Documents.of(long).longest == 1000 and Documents.of(long[:, :400]).longest == 400
    assert Documents.of(long[:, 200:500] - 200 * (long[:, 200:500] > 0)).longest == 256


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        (STARTS[:, :4], r"\[2, 4\].*\[2, 8\]: whole sequences"),
        (STARTS[:1], r"\[1, 8\].*\[2, 8\]"),
        (STARTS - 1, r"starts\[0, 0\] is -1; the document of place 0 begins at 0"),
        (STARTS.clamp(max=4), r"starts\[0, 5\] is 4; the document of place 5 begins at 3"),
        (STARTS.flip(1), r"starts\[0, 0\] is 5"),
    ],
)
def test_starts_that_are_none_are_refused(starts: torch.Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Positions.of(IDS, Mesh.single(), starts)


def test_other_documents_make_no_new_trace() -> None:
    traces = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        nonlocal traces
        traces += 1
        return graph

    @torch.compile(fullgraph=True, backend=backend)
    def bounds(positions: Positions) -> torch.Tensor:
        assert positions.documents is not None
        return positions.documents.bounds * 2 + positions.documents.longest

    for begins in ([3, 5, 6], [2, 4, 7], [1, 2, 5]):
        starts = torch.tensor([[max(b for b in [0, *begins] if b <= p) for p in range(8)]])
        bounds(Positions.of(IDS[:1], Mesh.single(), starts))
    assert traces == 1
