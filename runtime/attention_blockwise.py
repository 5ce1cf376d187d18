"""Attention block by block: partial results merged by their log-sum-exp, an explicit backward.

One function serves one process, keys and values gathered over cp, and a ring. Of a query's softmax
only the log-sum-exp is kept; with it and the output over *all* keys, each block's backward is the
kernel's own (Dao 2023, arXiv 2307.08691; Liu et al. 2023, arXiv 2310.01889).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from . import attention_kernels as kernels
from .attention_blocks import Step, steps
from .attention_choice import Options
from .attention_explicit import BARRED, Rules
from .context_parallel import gathered, scattered, start_gathering, start_turn, turned
from .documents import Documents
from .mesh import Axis
from .positions import Positions, Run, zigzag


class Plan(NamedTuple):
    """How one attention is computed: nothing that is a tensor.

    ``comm`` None: the keys given are all there are. ``longest``: no document has more places.
    """

    options: Options
    kernel: str
    comm: str | None
    cp: Axis
    longest: int | None

    def steps(self, length: int, in_runs: bool) -> tuple[Step, ...]:
        """The blocks for ``length`` places of this rank."""
        cp, rank = (1, 0) if self.comm is None else (self.cp.size, self.cp.rank)
        return steps(
            self.comm or "all_gather",
            length * cp,
            cp,
            rank,
            causal=self.options.causal,
            window=self.options.window,
            keep_runs=in_runs or self.options.dropout > 0,
            square=self.kernel == "cudnn",
        )

    def pieces(self, length: int, work: tuple[Step, ...]) -> tuple[Run, ...]:
        """The queries' rows in parts, where not every block has all of them."""
        if all(block.q.size == length for step in work for block in step):
            return (Run(0, 0, length),)
        return zigzag(length * self.cp.size, self.cp.size, self.cp.rank)

    def documents(self, bounds: Tensor | None) -> Documents | None:
        if bounds is None or self.longest is None:
            return None
        return Documents(bounds, self.longest)


def blockwise(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    positions: Positions,
    options: Options,
    key: Tensor | None,
    kernel: str,
    comm: str | None,
    cp: Axis,
) -> Tensor:
    """q [b, s, n, d], k, v [b, s, g, d], sinks float32 [n] -> [b, s, n, d]."""
    documents = positions.documents
    bounds, longest = (None, None) if documents is None else (documents.bounds, documents.longest)
    plan = Plan(options, kernel, comm, cp, longest)
    y = _Blockwise.apply(  # type: ignore[no-untyped-call]
        q, k, v, sinks, positions.starts, bounds, key, plan
    )
    return cast(Tensor, y)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        starts: Tensor | None,
        bounds: Tensor | None,
        key: Tensor | None,
        plan: Plan,
    ) -> Tensor:
        work = plan.steps(q.shape[1], starts is not None)
        rules, documents = Rules(plan.options, starts, key), plan.documents(bounds)
        pieces = plan.pieces(q.shape[1], work)
        done: list[tuple[Tensor, Tensor] | None] = [None for _ in pieces]
        held_k, held_v = k, v
        if plan.comm == "all_gather":
            held_k, held_v = gathered(start_gathering(k, v, plan.cp), k, v, plan.cp)
        for number, step in enumerate(work):
            coming = start_turn(held_k, held_v, plan.cp) if number + 1 < len(work) else None
            for block in step:
                rows, keys, values = _at(q, block.q), _at(held_k, block.k), _at(held_v, block.k)
                part = kernels.forward(plan.kernel, rows, keys, values, block, rules, documents)
                for i, piece in enumerate(pieces):
                    done[i] = _merged(done[i], part, block.q, piece)
            if coming is not None:
                held_k, held_v = turned(coming, k, v)
        parts = [part for part in done if part is not None]
        outs, lses = [part[0] for part in parts], [part[1] for part in parts]
        out = outs[0] if len(parts) == 1 else torch.cat(outs, 1)
        lse = lses[0] if len(parts) == 1 else torch.cat(lses, 2)
        if plan.comm == "p2p" and plan.options.window is not None:
            # Some ranks only hand on the keys that came last. A compiled recompute leaves out what
            # nothing reads, and these ranks would not take part in an exchange: zero is added.
            lse = lse + (held_k[:1, :1, :1, :1].isnan() & False).squeeze(-1)
        if sinks is not None:
            # One more term in the softmax's sum, which no value belongs to.
            total = torch.logaddexp(lse, sinks[:, None])
            out = out * (lse - total).exp().transpose(1, 2)[..., None]
            lse = total
        # Not where it changes nothing: what a forward returns unchanged from a conversion loses its
        # gradient, silently, in torch 2.11 under torch.compile.
        if out.dtype != q.dtype:
            out = out.to(q.dtype)
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, sinks, starts, bounds, key, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sinks, starts, bounds, key, out, lse = ctx.saved_tensors
        plan: Plan = ctx.plan
        grad = grads[0].contiguous()  # in one layout only: see `plain_gradient`
        work = plan.steps(q.shape[1], starts is not None)
        rules, documents = Rules(plan.options, starts, key), plan.documents(bounds)
        pieces = plan.pieces(q.shape[1], work)
        dq: list[Tensor | None] = [None for _ in pieces]
        dk: Tensor | None = None
        dv: Tensor | None = None
        held_k, held_v = k, v
        if plan.comm == "all_gather":
            held_k, held_v = gathered(start_gathering(k, v, plan.cp), k, v, plan.cp)
        begun = None  # what the ranks before added to the gradient of the keys held now
        for number, step in enumerate(work):
            coming = start_turn(held_k, held_v, plan.cp) if number + 1 < len(work) else None
            dk = dv = None
            for block in step:
                part = kernels.backward(
                    plan.kernel,
                    _at(grad, block.q),
                    _at(q, block.q),
                    _at(held_k, block.k),
                    _at(held_v, block.k),
                    _at(out, block.q),
                    lse[..., block.q.row : block.q.row + block.q.size],
                    block,
                    rules,
                    documents,
                )
                for i, piece in enumerate(pieces):
                    dq[i] = _added(dq[i], part[0], block.q, piece)
                whole = Run(0, 0, held_k.shape[1])
                dk = _added(dk, part[1], block.k, whole)
                dv = _added(dv, part[2], block.k, whole)
            if dk is None or dv is None:  # no query here sees the keys held
                dk, dv = torch.zeros_like(k), torch.zeros_like(v)
            if plan.comm == "p2p":
                if begun is not None:
                    before_k, before_v = turned(begun, k, v)
                    dk, dv = dk + before_k, dv + before_v
                begun = start_turn(dk.to(k.dtype), dv.to(v.dtype), plan.cp)
            if coming is not None:
                held_k, held_v = turned(coming, k, v)
        assert dk is not None and dv is not None
        if begun is not None:
            dk, dv = turned(begun, k, v)  # home
        dk, dv = dk.to(k.dtype), dv.to(v.dtype)
        if plan.comm == "all_gather":
            dk, dv = scattered(dk, dv, plan.cp)
        parts = [part.to(q.dtype) for part in dq if part is not None]
        whole_dq = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        dsinks = None
        if sinks is not None:
            along = (grad.float() * out.float()).sum(-1)  # [b, s, n]
            share = (sinks[:, None] - lse).exp()  # the sink's part of each softmax
            dsinks = -(share.transpose(1, 2) * along).sum((0, 1))
        return whole_dq, dk, dv, dsinks, None, None, None, None


def _at(x: Tensor, run: Run) -> Tensor:
    return x if run.size == x.shape[1] else x[:, run.row : run.row + run.size]


def _merged(
    done: tuple[Tensor, Tensor] | None, part: tuple[Tensor, Tensor], rows: Run, piece: Run
) -> tuple[Tensor, Tensor] | None:
    """Output and log-sum-exp of a piece, in float32, with a block's of ``rows`` where they meet.

    Nothing is written in place: torch 2.11 under torch.compile would save what was there before.
    """
    first, end = _meeting(rows, piece)
    if first >= end:
        return done
    y = part[0][:, first - rows.row : end - rows.row]
    lse = part[1][..., first - rows.row : end - rows.row]
    whole = end - first == piece.size
    if done is None and whole:
        return y, lse
    if done is None:
        shape = (y.shape[0], piece.size, *y.shape[2:])
        out = y.new_zeros(shape, dtype=torch.float32)
        total = lse.new_full((*lse.shape[:2], piece.size), BARRED)
    else:
        out, total = done
    at = slice(first - piece.row, end - piece.row)
    old = total[..., at]
    new = torch.logaddexp(old, lse)
    merged = out[:, at] * _weight(old, new) + y * _weight(lse, new)
    if whole:
        return merged, new
    return (
        torch.slice_scatter(out.float(), merged, 1, at.start, at.stop),
        torch.slice_scatter(total, new, 2, at.start, at.stop),
    )


def _added(total: Tensor | None, part: Tensor, rows: Run, piece: Run) -> Tensor | None:
    """The sum over blocks for a piece, in float32 where there are several."""
    first, end = _meeting(rows, piece)
    if first >= end:
        return total
    part = part[:, first - rows.row : end - rows.row]
    whole = end - first == piece.size
    if total is None and whole:
        return part
    if total is None:
        shape = (part.shape[0], piece.size, *part.shape[2:])
        total = part.new_zeros(shape, dtype=torch.float32)
    if whole:
        return total.float() + part
    total = total.float()
    total[:, first - piece.row : end - piece.row] += part
    return total


def _meeting(rows: Run, piece: Run) -> tuple[int, int]:
    """The first row that both have, and the row after the last."""
    return max(rows.row, piece.row), min(rows.row + rows.size, piece.row + piece.size)


def _weight(lse: Tensor, total: Tensor) -> Tensor:
    """[b, n, s] -> [b, s, n, 1]"""
    return (lse - total).exp().transpose(1, 2)[..., None]
