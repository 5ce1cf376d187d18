"""What a mask leaves of queries times keys, as rectangles that attention kernels understand."""

from __future__ import annotations

from typing import NamedTuple

from .positions import Run, zigzag


class Block(NamedTuple):
    """Rows ``q`` of the queries held against rows ``k`` of the keys held.

    Aligned at their ends, as flash attention does it: row i of nq sees row j of nk where
    -left <= j - (i + nk - nq) <= right; None is no bound.
    """

    q: Run
    k: Run
    left: int | None
    right: int | None

    @property
    def whole(self) -> bool:
        """Every query sees every key."""
        return self.left is None and self.right is None


Step = tuple[Block, ...]  # what is computed with the keys held at one time


def steps(
    comm: str,
    length: int,
    cp: int,
    rank: int,
    *,
    causal: bool,
    window: int | None,
    keep_runs: bool = False,
    square: bool = False,
) -> tuple[Step, ...]:
    """The work of one rank of cp, whose queries are its zigzag part of ``length`` places.

    ``comm`` says which keys it holds: with "p2p" those of rank - j in step j, else all in one step.
    Nothing that no query sees is in a block. ``keep_runs``: the rows of a block follow each other
    in the sequence too, as kernels that look at places need it; else neighbours are joined.
    ``square``: causal blocks are square, the rest before them is a block of its own.
    """
    queries = zigzag(length, cp, rank)
    if comm == "p2p":
        held = [zigzag(length, cp, (rank - j) % cp) for j in range(cp)]
    else:
        held = [(Run(0, 0, length),)]
    result = []
    for keys in held:
        if queries == keys and window is None and not keep_runs:
            # The order of the rows is the order of the places: one causal block.
            rows = Run(0, queries[0].place, sum(run.size for run in queries))
            blocks = [Block(rows, rows, None, 0 if causal else None)]
        else:
            pairs = [_between(q, k, causal, window) for q in queries for k in keys]
            blocks = [block for block in pairs if block is not None]
            if square:
                blocks = [part for block in blocks for part in _squared(block)]
            if not keep_runs:
                blocks = _joined(blocks)
        result.append(tuple(blocks))
    return tuple(result)


def _between(q: Run, k: Run, causal: bool, window: int | None) -> Block | None:
    """What queries of run q see of run k, without the rows at its sides that take no part."""
    first_q, end_q = q.place, q.place + q.size
    first_k, end_k = k.place, k.place + k.size
    if causal:
        end_k = min(end_k, end_q)
        first_q = max(first_q, first_k)
    if window is not None:
        first_k = max(first_k, first_q - window + 1)
        end_q = min(end_q, end_k - 1 + window)
    if first_q >= end_q or first_k >= end_k:
        return None
    later = end_q - end_k  # by how much the queries' end lies behind the keys'
    return Block(
        Run(q.row + first_q - q.place, first_q, end_q - first_q),
        Run(k.row + first_k - k.place, first_k, end_k - first_k),
        None if window is None or end_q - 1 - first_k < window else window - 1 - later,
        later if causal and first_q < end_k - 1 else None,
    )


def _squared(block: Block) -> list[Block]:
    q, k, extra = block.q, block.k, block.k.size - block.q.size
    if block.right != 0 or extra <= 0:
        return [block]
    before, beside = Run(k.row, k.place, extra), Run(k.row + extra, k.place + extra, q.size)
    return [Block(q, before, None, None), Block(q, beside, None, 0)]


def _joined(blocks: list[Block]) -> list[Block]:
    """Blocks without a mask that lie side by side become one: fewer and larger kernels."""
    for side_by_side in (_beside, _below):
        result: list[Block] = []
        for block in blocks:
            wide = side_by_side(result[-1], block) if result else None
            if wide is None:
                result.append(block)
            else:
                result[-1] = wide
        blocks = result
    return blocks


def _beside(a: Block, b: Block) -> Block | None:
    """One block of both, where they have the same queries and b's keys follow a's."""
    if a.whole and b.whole and a.q == b.q and a.k.row + a.k.size == b.k.row:
        return Block(a.q, Run(a.k.row, a.k.place, a.k.size + b.k.size), None, None)
    return None


def _below(a: Block, b: Block) -> Block | None:
    """One block of both, where they have the same keys and b's queries follow a's."""
    if a.whole and b.whole and a.k == b.k and a.q.row + a.q.size == b.q.row:
        return Block(Run(a.q.row, a.q.place, a.q.size + b.q.size), a.k, None, None)
    return None
