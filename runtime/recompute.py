"""Activation recompute: what a layer computed in the forward, computed again in the backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from .data_parallel import parts_around
from .norm import LayerNorm, RMSNorm
from .partial_product import inside_partial_product

GRANULARITIES = ("none", "selective", "full")
CORE_ATTENTION = "core_attn"
LAYERNORM = "layernorm"
_NORMS = (LayerNorm, RMSNorm, nn.LayerNorm, nn.RMSNorm)

# Results that "selective" keeps. Gathers are not among them: theirs are tp times the activations.
_KEPT = (
    "aten::mm",
    "aten::addmm",
    "aten::_grouped_mm",
    "specc::grouped_product",
    "aten::_scaled_mm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_flash_attention_forward",
    "torch_attn::_varlen_attn",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::all_reduce",
)


@dataclass(frozen=True)
class Recompute:
    """What is computed again, in Megatron's words (recompute_granularity, recompute_modules).

    Of a layer (an element of the outermost module lists) the backward finds kept

    ============================  ===================================  ========================
    choice                        kept from the forward                repeated with collectives
    ============================  ===================================  ========================
    "none"                        what its backward needs              nothing
    "full"                        its inputs                           its forward, but for the
                                                                       reduction that ends it
    "selective"                   its inputs; results of products      all-gathers, all-to-alls
                                  with a weight, attention kernels,    (compiled: if its backward
                                  reduce-scatters and all-reduces      reads what comes of them)
    "selective" with ``modules``  as "none", but of the modules named  these modules' forwards
                                  their inputs only
    ============================  ===================================  ========================

    A product that a reduction follows (``RowParallelLinear`` at tp above 1) is not kept, but its
    sum; not compiled, it is computed again. Under cp an attention kernel runs once for each block
    of keys, and each block's result is kept.

    ``every``: every so-manieth layer does so, the first included; the others keep all.
    ``modules``: names that submodules have in the layers (``mlp``, ``self_attention``, ...);
    ``layernorm`` for all norms, and ``core_attn`` for attention between its projections, which
    ``Mesh.recompute_core_attn`` brings about and ``apply_recompute`` passes over. A norm's result
    is kept by what reads it, unless the layer is compiled.

    Raises ValueError for a choice that is none.
    """

    granularity: str = "none"
    every: int = 1
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise ValueError(
                f"recompute {self.granularity!r} is not one of {', '.join(GRANULARITIES)}"
            )
        if self.every < 1:
            raise ValueError(f"recompute of every {self.every}-th layer: it has to be 1 or more")
        if self.modules and self.granularity != "selective":
            raise ValueError(
                f"recompute of modules ({', '.join(self.modules)}) goes with 'selective', not with "
                f"{self.granularity!r}"
            )

    @property
    def core_attention(self) -> bool:
        """What ``Mesh.recompute_core_attn`` has to be."""
        return CORE_ATTENTION in self.modules


def apply_recompute(
    units: Sequence[nn.Module], choice: Recompute, *, apart: Collection[nn.Module] = ()
) -> None:
    """Makes the forwards of ``units``, a model's layers, do as chosen: in place, all names stay.

    Call it before a layer is compiled and before ``shard``: the recompute is then inside of the
    compiled layer, and FSDP gathers a layer once for its backward, recompute included. Random
    numbers that a forward drew are drawn again alike; ``Dropout`` has the same mask as long as
    ``set_dropout_step`` waits for the backward.

    ``apart``: of a layer that is compiled in parts around these (``compile_layers``) each part
    chooses by its operations, and what lies between the parts is kept.

    Raises ValueError where there is no layer, and for a module name that no layer chosen has.
    """
    if choice.granularity == "none":
        return
    if not units:
        raise ValueError(
            f"recompute {choice.granularity!r} is of layers, the elements of an nn.ModuleList, and "
            "the model has none"
        )
    targets = list(units)[:: choice.every]
    policy = None
    if choice.modules:
        targets = _named(targets, choice.modules)
    elif choice.granularity == "selective":
        policy = _policy
        targets = [part for target in targets for part in parts_around(target, apart)]
    for module in dict.fromkeys(targets):
        # A class and not an attribute, so that layers of one class stay one graph when compiled.
        kind: Any = type(module)
        module.__class__ = _recomputed(kind, policy)


def _named(units: Sequence[nn.Module], names: Sequence[str]) -> list[nn.Module]:
    """The outermost submodules of these names."""
    found: list[nn.Module] = []
    there = {LAYERNORM, CORE_ATTENTION}
    met = {CORE_ATTENTION}

    def search(module: nn.Module) -> None:
        for name, child in module.named_children():
            own = {name, LAYERNORM} if isinstance(child, _NORMS) else {name}
            there.update(own)
            met.update(own)
            if own.isdisjoint(names):
                search(child)
            else:
                found.append(child)

    for unit in units:
        search(unit)
    unknown = [name for name in names if name not in met]
    if unknown:
        raise ValueError(
            f"no layer has a module {' or '.join(map(repr, unknown))} to recompute; there are "
            + ", ".join(sorted(name for name in there if not name.isdigit()))
        )
    return found


Policy = Callable[..., CheckpointPolicy]


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Keep a result or compute it again, by the operation."""
    kept = (
        operation in _kept()
        and not inside_partial_product()
        and not _draws(operation, args, kwargs)
    )
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


@functools.cache
def _kept() -> frozenset[Any]:
    found = set()
    for name in _KEPT:
        namespace, _, operation = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operation, None)  # not in every torch
        if packet is not None:
            found |= {getattr(packet, overload) for overload in packet.overloads()}
    return frozenset(found)


def _draws(operation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether it drops out probabilities: kept, the next to draw would get its random numbers."""
    for index, argument in enumerate(operation._schema.arguments):
        if argument.name == "dropout_p":
            p = args[index] if index < len(args) else kwargs.get("dropout_p", 0.0)
            return bool(p > 0)
    return False


@functools.cache
def _recomputed(kind: type[nn.Module], policy: Policy | None) -> type[nn.Module]:
    """``kind`` with a forward that is run again in the backward."""
    options: dict[str, Any] = {}
    if policy is not None:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, policy)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(
            functools.partial(kind.forward, self), *args, use_reentrant=False, **options, **kwargs
        )

    kept = ("__module__", "__qualname__", "__doc__")
    return type(kind.__name__, (kind,), {"forward": forward} | {n: getattr(kind, n) for n in kept})
