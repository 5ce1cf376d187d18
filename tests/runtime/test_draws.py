"""Attention dropout draws apart on the ranks that hold different heads, and alike elsewhere."""

import torch
from torch import Tensor

from specc.runtime.attention import attention
from specc.runtime.mesh import Mesh
from specc.runtime.positions import Positions


def _drop() -> tuple[Tensor, Tensor, Tensor]:
    mesh = Mesh.launch(tp=2)
    torch.manual_seed(5)
    q = torch.ones(1, 16, 2, 8)
    positions = Positions.of(torch.zeros(1, 16, dtype=torch.long), mesh)
    first, second = (attention(q, q, q, positions, mesh, dropout=0.5) for _ in range(2))
    return first, second, torch.rand(4)


def test_each_rank_and_each_call_drops_its_own_and_the_generators_stay_alike(ranks) -> None:
    (first, second, after), (other, _, other_after) = ranks(2, _drop)
    assert not torch.equal(first, other)
    assert not torch.equal(first, second)
    assert torch.equal(after, other_after)


def test_one_process_draws_as_torch_does() -> None:
    q = torch.ones(1, 8, 2, 8)
    positions = Positions.of(torch.zeros(1, 8, dtype=torch.long), Mesh.single())
    torch.manual_seed(1)
    seen = attention(q, q, q, positions, Mesh.single(), dropout=0.5)
    torch.manual_seed(1)
    heads = q.transpose(1, 2)
    plain = torch.nn.functional.scaled_dot_product_attention(
        heads, heads, heads, dropout_p=0.5, is_causal=True
    )
    assert torch.equal(seen, plain.transpose(1, 2))
