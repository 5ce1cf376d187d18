"""Experts at every layout give what one process gives: output, gradients, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from expert_layer import EXPERTS, TOPK, Experts, Way, choices, run

from specc.runtime import Mesh
from specc.runtime.moe_dispatch import combine, dispatch

Ranks = Callable[..., list[Any]]
KINDS = ["drawn", "all to one", "none for some", "dropped", "nothing", "one token"]
WAYS = {
    2: [
        Way(ep=2),
        Way(tp=2, sp=True),
        Way(tp=2),
        Way(tp=2, ep=2, etp=1),
        Way(tp=2, sp=True, ep=2, etp=1),
        Way(etp=2),
    ],
    4: [
        Way(ep=4),
        Way(ep=2),
        Way(ep=2, etp=2),
        Way(tp=2, sp=True, ep=2),
        Way(tp=2, ep=2),
        Way(tp=2, ep=4, etp=1),
        Way(tp=4, ep=2, etp=2),
        Way(tp=4, sp=False, ep=1, etp=4),
    ],
}
# The sums of up to 4 ranks in another order: float32 rounding of values of order 1.
CLOSE = 1e-5


@pytest.mark.parametrize("size", WAYS)
@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_equals_one_process(ranks: Ranks, size: int, dispatcher: str) -> None:
    ways = [replace(way, dispatcher=dispatcher) for way in WAYS[size]]
    if dispatcher == "alltoall":
        ways += [replace(way, capacity=2 * 4 * 6 * TOPK) for way in ways[:3]]
    alone = run([Way()], KINDS)
    cases = [(way, kind) for way in ways for kind in KINDS]
    # One token cannot be cut over its places.
    cases = [(way, kind) for way, kind in cases if not (way.sp and kind == "one token")]
    results = ranks(size, run_cases, cases)
    for rank, of_rank in enumerate(results):
        for (way, kind), result in zip(cases, of_rank, strict=True):
            one = alone[KINDS.index(kind)]
            told = f"{way}, {kind}, rank {rank}"
            parts, number, cuts, place = result["part"]
            for name in ("y", "dx", "dprobs"):
                expected = one[name].chunk(parts)[number].chunk(cuts, 1)[place if cuts > 1 else 0]
                torch.testing.assert_close(
                    result[name], expected, rtol=CLOSE, atol=CLOSE, msg=f"{told}: {name}"
                )
            for name, expected in one["gradients"].items():
                found = result["gradients"][name]
                limit = CLOSE * max(1.0, float(expected.abs().max()))
                assert (found - expected).abs().max() <= limit, f"{told}: {name}"


def run_cases(cases: list[tuple[Way, str]]) -> list[dict[str, Any]]:
    return [run([way], [kind])[0] for way, kind in cases]


def test_rows_stand_by_expert_and_come_back() -> None:
    x, probs, experts = choices("dropped")
    sent = dispatch(x, probs, experts, EXPERTS, Mesh.single())
    assert sent.tokens_per_expert.tolist() == [int((experts == e).sum()) for e in range(EXPERTS)]
    taken = int(sent.tokens_per_expert.sum())
    spoiled = sent.rows.clone()
    spoiled[taken:] = torch.nan  # what of no expert is never read
    back = combine(spoiled, sent)
    assert torch.equal(back, x * (experts >= 0).sum(-1, keepdim=True))


def test_padded_experts_have_as_many_rows_each() -> None:
    x, probs, experts = choices("dropped")
    sent = dispatch(x, probs, experts, EXPERTS, Mesh.single(), capacity=30)
    assert sent.tokens_per_expert.tolist() == [30] * EXPERTS and sent.rows.shape[0] == 120
    assert torch.equal(combine(sent.rows, sent), x * (experts >= 0).sum(-1, keepdim=True))


def test_a_part_of_the_experts_that_ep_does_not_divide_is_refused(ranks: Ranks) -> None:
    ranks(2, _refused)


def _refused() -> None:
    with pytest.raises(ValueError, match="ep=2 does not divide 3 experts"):
        Experts(Mesh.launch(ep=2), 3)
