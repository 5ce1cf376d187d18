"""Mistakes planted in what experts and pipelines exchange and count: see mutants.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from mutants import COLLECTIVES, SUMS, Mutant, patched
from torch import Tensor, nn

from specc.runtime import collectives, gradients, moe_capacity, moe_losses, moe_router, pipeline
from specc.runtime.mesh import Mesh
from specc.runtime.micro_batch import Turn
from specc.runtime.moe_exchange import Exchange
from specc.runtime.parameters import ParameterRecord, replicated_axes
from specc.runtime.step_record import AttachedLoss, StepRecord


def exchanged(axis_name: str, *, others: float, own: float) -> Mutant:
    """An all-to-all over one axis, whose backward scales what comes from others and from itself."""
    before = collectives._AllToAll.backward

    def changed(ctx: Any, *grads: Tensor) -> Any:
        first, *rest = before(ctx, *grads)
        if ctx.axis.name == axis_name:
            parts = torch.split(first, ctx.sent)
            scales = [own if rank == ctx.axis.rank else others for rank in range(len(parts))]
            first = torch.cat([scale * part for scale, part in zip(scales, parts, strict=True)])
        return (first, *rest)

    return lambda: patched(collectives._AllToAll, "backward", staticmethod(changed))


@contextmanager
def parts_not_summed() -> Iterator[None]:
    """What other ranks of etp made of a row is left out."""
    right = Exchange.back

    def wrong(self: Exchange, rows: Tensor) -> Tensor:
        etp = self.mesh.etp
        kept = torch.zeros_like(rows)
        start = sum(self.shared[: etp.rank])
        part = slice(start, start + self.shared[etp.rank])
        kept[part] = rows[part]
        return right(self, kept if etp.size > 1 else rows)

    with patched(Exchange, "back", wrong):
        yield


@contextmanager
def probabilities_detached() -> Iterator[None]:
    """What a row counts for comes without a gradient."""
    right = Exchange.there
    with patched(
        Exchange,
        "there",
        lambda self, rows: right(self, rows.detach() if rows.dim() == 1 else rows),
    ):
        yield


def own_tokens_alone(module: Any) -> Mutant:
    """A micro-batch's tokens are taken to be this rank's."""

    def wrong(tokens: Tensor, mesh: Mesh) -> int:
        return tokens.shape[0] * tokens.shape[1]

    return lambda: patched(module, "micro_batch_tokens", wrong)


def _own_order(length: int, mesh: Mesh, device: torch.device) -> Tensor:
    return torch.arange(length, device=device)


_begin = StepRecord.begin_micro_batch


def _first_place(record: StepRecord, name: str, turn: Turn) -> None:
    _begin(record, name, replace(turn, index=0))


def expert_axes(change: Any) -> Mutant:
    """The gradients of experts are summed over other axes."""

    def wrong(record: ParameterRecord, mesh: Mesh) -> Any:
        axes = replicated_axes(record, mesh)
        return axes if record.expert_dim is None else change(axes, mesh)

    return lambda: patched(gradients, "replicated_axes", wrong)


@contextmanager
def router_not_summed() -> Iterator[None]:
    """Routers' weights are taken for cut over tp."""
    right = gradients.canonical_parameters

    def wrong(model: nn.Module) -> Any:
        for name, record, parameter in right(model):
            yield name, replace(record, dim=0) if "router" in name else record, parameter

    with patched(gradients, "canonical_parameters", wrong):
        yield


def handed_on(method: str, scale: float) -> Mutant:
    """What a stage gives the other is scaled: its output, or its input's gradient."""
    right, send = vars(pipeline._Turnover)[method], pipeline._Turnover.send

    def wrong(self: Any, action: Any) -> None:
        def scaled(self: Any, tensor: Tensor, rank: int) -> None:
            send(self, scale * tensor if tensor.is_floating_point() else tensor, rank)

        with patched(pipeline._Turnover, "send", scaled):
            right(self, action)

    return lambda: patched(pipeline._Turnover, method, wrong)


MICRO_BATCH = {
    "capacity of this rank's own tokens": own_tokens_alone(moe_capacity),
    "drops in this rank's own order": lambda: patched(moe_capacity, "token_places", _own_order),
    "others' choices not seen": lambda: patched(
        moe_capacity, "_gathered", lambda flat, num_experts, mesh: (flat, 0)
    ),
    "balance by this rank's own tokens": lambda: patched(
        moe_losses, "summed", lambda counts, axis: counts
    ),
    "z-loss by this rank's own tokens": own_tokens_alone(moe_losses),
    "a router's loss for each rank of dp": lambda: patched(
        AttachedLoss, "losses_per_turn", property(lambda loss: 1)
    ),
    "a router's loss for each micro-batch": lambda: patched(
        moe_losses.RouterLoss, "begin_micro_batch", StepRecord.begin_micro_batch
    ),
    "a count at another micro-batch's place": lambda: patched(
        StepRecord, "begin_micro_batch", _first_place
    ),
    "biases by this rank's own counts": lambda: patched(
        moe_router, "start_all_reduce", lambda counts, axis: counts
    ),
}
EXCHANGES = {
    "exchange over ep, gradient doubled": exchanged("ep", others=2, own=2),
    "exchange over ep, others' gradient lost": exchanged("ep", others=0, own=1),
    "exchange over etp, gradient doubled": exchanged("etp", others=2, own=2),
    "exchange over etp, others' gradient lost": exchanged("etp", others=0, own=1),
    "parts of etp not summed": parts_not_summed,
    "probabilities' gradient lost": probabilities_detached,
    "stage's output doubled": handed_on("send_hidden", 2),
    "stage's gradient doubled": handed_on("send_gradient", 2),
    "stage's gradient lost": handed_on("send_gradient", 0),
}
RULES = {
    "experts summed as all else": expert_axes(lambda axes, mesh: (mesh.dp_cp,)),
    "experts not summed": expert_axes(lambda axes, mesh: ()),
    "router not summed": router_not_summed,
}
_GENERAL = ("all_gather removed", "all_gather doubled", "reduce_scatter removed")
_GENERAL += ("reduce_scatter doubled", "sum of replicated gradients removed")

ALL: dict[str, Mutant] = MICRO_BATCH | EXCHANGES | RULES
ALL |= {name: mutant for name, mutant in (COLLECTIVES | SUMS).items() if name in _GENERAL}
# What a model is built with, and keeps.
BUILT = {"a router's loss for each rank of dp", "a router's loss for each micro-batch"}
