"""Embeddings, vocabulary cut over tp (also where tp does not divide it)."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from specc.runtime import (
    Mesh,
    PositionEmbedding,
    Positions,
    VocabParallelEmbedding,
    all_gather,
    full_tensors,
    materialize,
    sum_replicated_gradients,
)

B, S, H = 2, 8, 6


class Embeddings(nn.Module):
    def __init__(self, mesh: Mesh, vocabulary: int) -> None:
        super().__init__()
        self.mesh = mesh
        self.words = VocabParallelEmbedding(vocabulary, H, mesh)
        self.positions = PositionEmbedding(16, H, mesh)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids) + self.positions(Positions.of(ids, self.mesh))


def _results(mesh: Mesh, vocabulary: int) -> dict[str, Tensor]:
    model = materialize(lambda: Embeddings(mesh, vocabulary), mesh)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(vocabulary, (B, S), generator=generator)
    ids[0, :vocabulary] = torch.arange(vocabulary)[:S]
    weight = torch.randn(B, S, H, generator=generator)
    y = model(ids)
    if mesh.sequence_parallel:
        y = all_gather(y, 1, mesh.tp)
    (y * weight).sum().div(mesh.tp.size).backward()
    sum_replicated_gradients(model, mesh)
    values = {f"weight {k}": v for k, v in full_tensors(model, mesh).items()}
    return {"y": y.detach(), **values, **full_tensors(model, mesh, grads=True)}


def _compare(sequence_parallel: bool, vocabulary: int) -> None:
    mesh = Mesh.launch(tp=dist.get_world_size(), sequence_parallel=sequence_parallel)
    got, expected = _results(mesh, vocabulary), _results(Mesh.single(), vocabulary)
    assert torch.equal(got["y"], expected["y"])  # one term of each sum is not zero
    for name, value in expected.items():
        assert got[name].shape == value.shape
        assert (got[name] - value).abs().max() <= 1e-5 * value.abs().max(), name


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("vocabulary", [16, 13, 5])
def test_equals_one_process(ranks, size: int, sequence_parallel: bool, vocabulary: int) -> None:
    ranks(size, _compare, sequence_parallel, vocabulary)


def test_one_process_is_plain_lookup_in_the_meshs_dtype() -> None:
    mesh = Mesh.single(torch.bfloat16)
    model = materialize(lambda: Embeddings(mesh, 7), mesh)
    ids = torch.arange(6).view(2, 3)
    assert torch.equal(model.words(ids), F.embedding(ids, model.words.weight.bfloat16()))
    assert model(ids).dtype == torch.bfloat16


def _outside(bad: int) -> bool:
    mesh = Mesh.launch(tp=dist.get_world_size())
    words = materialize(lambda: VocabParallelEmbedding(5, H, mesh), mesh)
    local = torch.tensor([[bad]]) - words.cut.offset
    try:
        # Ranks where it raises do not come to the collective: look up alone.
        F.embedding(local, words.weight)
    except IndexError:
        return True
    return False


@pytest.mark.parametrize("bad", [-1, 5, 99])
def test_an_id_outside_the_vocabulary_raises_on_some_rank(ranks, bad: int) -> None:
    assert any(ranks(2, _outside, bad))
