"""Mistakes planted in the runtime: each a context manager, by name, for the ranks of a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from specc.runtime import attention_blockwise, collectives, gradients, linear, positions, trainer
from specc.runtime.context_parallel import dealt_out
from specc.runtime.mesh import Mesh
from specc.runtime.parameters import parameter_table
from specc.runtime.positions import Positions

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ------------------------------------------------------- the backward of each collective

Change = Callable[[Tensor, Tensor, Any], Tensor]  # the gradient, what came in, the axis


def backward(cls: Any, change: Change) -> Mutant:
    """The first gradient that a function's backward gives is another."""
    before = cls.backward

    def changed(ctx: Any, *grads: Tensor) -> Any:
        first, *others = before(ctx, *grads)
        return (change(first, grads[0], ctx.axis), *others)

    return lambda: patched(cls, "backward", staticmethod(changed))


def during_backward(cls: Any, module: Any, name: str, wrong: Callable[..., Any]) -> Mutant:
    """``module.name`` is another function while a backward runs; ``wrong`` takes the right one."""
    before, right = cls.backward, vars(module)[name]

    def changed(ctx: Any, *grads: Tensor) -> Any:
        with patched(module, name, lambda *given: wrong(right, *given)):
            return before(ctx, *grads)

    return lambda: patched(cls, "backward", staticmethod(changed))


def doubled(gradient: Tensor, came: Tensor, axis: Any) -> Tensor:
    return 2 * gradient


def own_slot(gradient: Tensor, came: Tensor, axis: Any) -> Tensor:
    """[n, ..] -> [size * n, ..], zero where other ranks' parts belong."""
    whole = torch.zeros_like(gradient)
    whole.chunk(axis.size)[axis.rank].copy_(came)
    return whole


class Ring:
    """What goes round the ring: keys and values, or their gradients. Only the one goes wrong."""

    def __init__(self, gradients: bool, factor: float) -> None:
        self.gradients, self.factor = gradients, factor
        self.right_start = attention_blockwise.start_turn
        self.right_turned = attention_blockwise.turned

    @contextmanager
    def __call__(self) -> Iterator[None]:
        right = attention_blockwise._Blockwise.backward

        def changed(ctx: Any, *grads: Tensor) -> Any:
            keys = {id(ctx.saved_tensors[1])}
            coming: dict[int, bool] = {}
            held = list(ctx.saved_tensors)  # no id is used twice

            def start(k: Tensor, v: Tensor, axis: Any) -> Tensor:
                started = self.right_start(k, v, axis)
                coming[id(started)] = id(k) not in keys
                held.append(started)
                return started

            def turned(started: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
                new_k, new_v = self.right_turned(started, k, v)
                if coming[id(started)] == self.gradients:
                    new_k, new_v = self.factor * new_k, self.factor * new_v
                if not coming[id(started)]:
                    keys.add(id(new_k))
                held.append(new_k)
                return new_k, new_v

            with (
                patched(attention_blockwise, "start_turn", start),
                patched(attention_blockwise, "turned", turned),
            ):
                return right(ctx, *grads)

        with patched(attention_blockwise._Blockwise, "backward", staticmethod(changed)):
            yield


def _own_part(right: Any, dk: Tensor, dv: Tensor, axis: Any) -> tuple[Tensor, ...]:
    return tuple(dealt_out(x, axis.size)[axis.rank] for x in (dk, dv))


def _twice(right: Any, *given: Any) -> Any:
    result = right(*given)
    return tuple(2 * x for x in result) if isinstance(result, tuple) else 2 * result


def _nothing(right: Any, *given: Any) -> Any:
    return tuple(0 * x for x in right(*given))


_LINEAR, _BLOCKWISE = linear._GatheredLinear, attention_blockwise._Blockwise

COLLECTIVES: dict[str, Mutant] = {
    "all_reduce removed": backward(collectives._AllReduce, lambda g, came, axis: came.clone()),
    "all_reduce doubled": backward(collectives._AllReduce, doubled),
    "all_gather removed": backward(
        collectives._AllGather, lambda g, came, axis: came.chunk(axis.size)[axis.rank]
    ),
    "all_gather doubled": backward(collectives._AllGather, doubled),
    "reduce_scatter removed": backward(collectives._ReduceScatter, own_slot),
    "reduce_scatter doubled": backward(collectives._ReduceScatter, doubled),
    "all_to_all removed": backward(collectives._AllToAll, lambda g, came, axis: came.clone()),
    "all_to_all doubled": backward(collectives._AllToAll, doubled),
    "gathered linear, sum of dx removed": during_backward(
        _LINEAR,
        linear,
        "start_reduce_scatter",
        lambda right, x, axis: x.chunk(axis.size)[axis.rank].clone(),
    ),
    "gathered linear, sum of dx doubled": during_backward(
        _LINEAR, linear, "start_reduce_scatter", lambda right, x, axis: right(2 * x, axis)
    ),
    "gathered linear, gather for dW removed": during_backward(
        _LINEAR, linear, "start_all_gather", lambda right, x, axis: x.repeat(axis.size, 1)
    ),
    "gathered linear, gather for dW doubled": during_backward(
        _LINEAR, linear, "start_all_gather", lambda right, x, axis: right(2 * x, axis)
    ),
    "gathered keys, sum of dk and dv removed": during_backward(
        _BLOCKWISE, attention_blockwise, "scattered", _own_part
    ),
    "gathered keys, sum of dk and dv doubled": during_backward(
        _BLOCKWISE, attention_blockwise, "scattered", _twice
    ),
    "gathered keys, second gather removed": during_backward(
        _BLOCKWISE, attention_blockwise, "gathered", _nothing
    ),
    "gathered keys, second gather doubled": during_backward(
        _BLOCKWISE, attention_blockwise, "gathered", _twice
    ),
    "ring, gradients lost on the way": Ring(gradients=True, factor=0.0),
    "ring, gradients doubled on the way": Ring(gradients=True, factor=2.0),
    "ring, keys of the second round lost": Ring(gradients=False, factor=0.0),
    "ring, keys of the second round doubled": Ring(gradients=False, factor=2.0),
}


# ------------------------------------------------------- sums of gradients and of the loss


def after_sum(change: Callable[[nn.Module, Mesh], None]) -> Mutant:
    """Something is done to gradients once they are summed."""
    right = trainer.sum_replicated_gradients

    def changed(model: nn.Module, mesh: Mesh) -> None:
        right(model, mesh)
        with torch.no_grad():
            change(model, mesh)

    return lambda: patched(trainer, "sum_replicated_gradients", changed)


def _sharded_doubled(model: nn.Module, mesh: Mesh) -> None:
    for parameter in model.parameters():
        if gradients.as_sharded(parameter) is not None and parameter.grad is not None:
            parameter.grad.mul_(2)


def each_group(change: Callable[[Any], None]) -> Mutant:
    """Something is done to FSDP's groups before each micro-batch."""
    right = trainer.accumulate

    def changed(model: nn.Module, *, last: bool) -> None:
        right(model, last=last)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                change(module)

    return lambda: patched(trainer, "accumulate", changed)


def _averaged(module: Any) -> None:
    module.set_force_sum_reduction_for_comms(False)
    group = module._get_fsdp_state()._fsdp_param_group
    if group is not None:
        group.gradient_divide_factor = None


SUMS: dict[str, Mutant] = {
    "sum of replicated gradients removed": lambda: patched(
        trainer, "sum_replicated_gradients", lambda model, mesh: None
    ),
    "FSDP's sum doubled": after_sum(_sharded_doubled),
    "FSDP's sum removed": each_group(lambda m: m.set_requires_gradient_sync(False, recurse=False)),
    "FSDP averages": each_group(_averaged),
    "sum over FSDP's copies removed": each_group(
        lambda m: m.set_requires_all_reduce(False, recurse=False)
    ),
    "loss not divided by tp": lambda: patched(
        trainer,
        "local_loss",
        lambda output, labels, kind, mesh, tokens: _loss(
            output, labels, kind, Mesh.single(), tokens
        ),
    ),
    "tokens counted on this rank alone": lambda: patched(
        trainer.Trainer, "_over_ranks", lambda self, count: torch.tensor(max(count, 1))
    ),
}
_loss = trainer.local_loss
STICKY = {"FSDP's sum removed", "FSDP averages", "sum over FSDP's copies removed"}  # in the model


# ------------------------------------------------------- one of each class


@contextmanager
def norm_not_summed() -> Iterator[None]:
    """Norms are taken for cut over tp: their gradients are not summed."""
    right = gradients.canonical_parameters

    def wrong(model: nn.Module) -> Any:
        for name, record, parameter in right(model):
            yield name, replace(record, dim=0) if "norm" in name else record, parameter

    with patched(gradients, "canonical_parameters", wrong):
        yield


def _tied_again(model: nn.Module, mesh: Mesh) -> None:
    for record in parameter_table(model).values():
        if record.tied_to is not None:
            gradient = model.get_parameter(record.tied_to).grad
            assert gradient is not None
            gradient.mul_(2)


@contextmanager
def contiguous_places() -> Iterator[None]:
    """The positions under cp are those of a sequence that is cut into one piece for each rank."""

    def wrong(length: int, mesh: Mesh, device: Any = "cpu") -> Tensor:
        return torch.arange(length, device=device).chunk(mesh.cp.size)[mesh.cp.rank]

    with patched(positions, "own_places", wrong):
        yield


@contextmanager
def documents_ignored() -> Iterator[None]:
    """Where ranks share a sequence, they see across the bounds of documents."""
    right = Positions.of

    def wrong(ids: Tensor, mesh: Mesh, starts: Tensor | None = None) -> Positions:
        return right(ids, mesh, starts if mesh.cp.size * mesh.tp.size == 1 else None)

    with patched(Positions, "of", staticmethod(wrong)):
        yield


@contextmanager
def window_ignored() -> Iterator[None]:
    """Where ranks share a sequence, a place sees all those before it."""
    # `specc.runtime.attention` is the function, which hides the module that it is in.
    module, right = sys.modules["specc.runtime.attention"], attention_blockwise.blockwise

    def wrong(q: Any, k: Any, v: Any, sinks: Any, places: Any, options: Any, *others: Any) -> Any:
        return right(q, k, v, sinks, places, options._replace(window=None), *others)

    with patched(module, "blockwise", wrong):
        yield


PLANTED: dict[str, Mutant] = {
    "norm not summed": norm_not_summed,
    "tied embedding summed twice": after_sum(_tied_again),
    "positions contiguous": contiguous_places,
    "documents ignored": documents_ignored,
    "window ignored": window_ignored,
}

ALL: dict[str, Mutant] = COLLECTIVES | SUMS | PLANTED
