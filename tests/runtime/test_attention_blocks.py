"""The blocks of an attention: together exactly what the mask leaves, none in vain."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specc.runtime.attention_blocks import Block, steps
from specc.runtime.positions import zigzag


def seen(block: Block) -> Tensor:
    """Bool [nq, nk]: what a kernel computes of a block, by its definition."""
    ahead = torch.arange(block.k.size) - (
        torch.arange(block.q.size)[:, None] + block.k.size - block.q.size
    )
    left, right = torch.ones_like(ahead).bool(), torch.ones_like(ahead).bool()
    if block.left is not None:
        left = ahead >= -block.left
    if block.right is not None:
        right = ahead <= block.right
    return left & right


@given(
    cp=st.sampled_from([1, 2, 3, 4]),
    piece=st.integers(1, 5),
    causal=st.booleans(),
    window=st.one_of(st.none(), st.integers(1, 30)),
    comm=st.sampled_from(["all_gather", "p2p"]),
    keep_runs=st.booleans(),
    square=st.booleans(),
)
def test_blocks_cover_what_the_mask_leaves_once(
    cp: int,
    piece: int,
    causal: bool,
    window: int | None,
    comm: str,
    keep_runs: bool,
    square: bool,
) -> None:
    length = 2 * cp * piece
    places = [
        torch.cat([torch.arange(run.place, run.place + run.size) for run in zigzag(length, cp, r)])
        for r in range(cp)
    ]
    assert torch.equal(torch.cat(places).sort().values, torch.arange(length))
    for rank in range(cp):
        found = torch.zeros(length // cp, length, dtype=torch.int64)
        work = steps(
            comm,
            length,
            cp,
            rank,
            causal=causal,
            window=window,
            keep_runs=keep_runs,
            square=square and window is None,
        )
        assert len(work) == (cp if comm == "p2p" else 1)
        for j, blocks in enumerate(work):
            held = places[(rank - j) % cp] if comm == "p2p" else torch.arange(length)
            for block in blocks:
                inside = seen(block)
                # Each row and each column of a block takes part: nothing is computed in vain.
                assert inside.any(0).all() and inside.any(1).all()
                assert (block.left is None or block.left >= 0) and block.right in (None, 0)
                if square and window is None and block.right == 0:
                    assert block.q.size == block.k.size
                rows = torch.arange(block.q.row, block.q.row + block.q.size)
                keys = held[block.k.row : block.k.row + block.k.size]
                if keep_runs:
                    mine = places[rank][rows]
                    assert mine.tolist() == list(range(block.q.place, block.q.place + block.q.size))
                    assert keys.tolist() == list(range(block.k.place, block.k.place + block.k.size))
                found[rows[:, None], keys] += inside.long()
        back = places[rank][:, None] - torch.arange(length)
        expected = torch.ones_like(back).bool()
        if causal:
            expected &= back >= 0
        if window is not None:
            expected &= back < window
        assert torch.equal(found, expected.long())


def test_a_causal_ring_has_even_work() -> None:
    """Half of what it holds, in every step, on every rank: the point of the zigzag."""
    for cp in (2, 4, 8):
        area = [
            [sum(b.q.size * b.k.size for b in step) for step in work]
            for work in (
                steps("p2p", 16 * cp, cp, rank, causal=True, window=None) for rank in range(cp)
            )
        ]
        # Step 0 is the causal square of a rank's own 16 places.
        assert area == [[16 * 16] + [8 * 16] * (cp - 1)] * cp
        blocks = [
            len(step)
            for rank in range(cp)
            for step in steps("p2p", 16 * cp, cp, rank, causal=True, window=None)
        ]
        assert set(blocks) == {1}


def test_a_window_leaves_far_ranks_nothing_to_do() -> None:
    work = steps("p2p", 64, 4, 0, causal=True, window=3)
    # Its own two pieces, and of rank 1's, held last, the end of the one beside its own.
    assert [len(step) for step in work] == [2, 0, 0, 1]
