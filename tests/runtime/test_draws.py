"""Attention dropout: each head and each call its own draw, torch's generators alike on all ranks.

That cp and tp draw the same masks stands in test_context_parallel.
"""

import torch
from torch import Tensor

from specc.runtime.attention import attention
from specc.runtime.draws import kept_scores
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


def test_weights_are_kept_at_the_rate_asked_and_apart() -> None:
    key = torch.tensor(12345)
    places = torch.arange(64)
    for p in (0.1, 0.5):
        kept = kept_scores(key, (2, 4), 0, places, places, p).float()
        deviation = (p * (1 - p) / kept.numel()) ** 0.5
        assert abs(kept.mean() - (1 - p)) < 5 * deviation
        for dim in range(4):  # a sequence, head, query or key further on: no relation
            other = kept.roll(1, dim)
            pair = torch.stack((kept.flatten(), other.flatten()))
            assert abs(torch.corrcoef(pair)[0, 1]) < 5 / kept.numel() ** 0.5


def test_a_part_of_heads_and_places_is_a_part_of_the_draw() -> None:
    key = torch.tensor(99)
    whole = kept_scores(key, (2, 6), 0, torch.arange(16), torch.arange(16), 0.3)
    part = kept_scores(key, (2, 2), 4, torch.arange(8, 12), torch.arange(3, 9), 0.3)
    assert torch.equal(part, whole[:, 4:, 8:12, 3:9])
