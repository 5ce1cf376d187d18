"""What kind of part a module is: by what it computes and holds, not by its class's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from specc.runtime import (
    CausalConv1d,
    ColumnParallelLinear,
    Dropout,
    GatedRMSNorm,
    GroupedColumnParallelLinear,
    GroupedRowParallelLinear,
    Jitter,
    LayerNorm,
    Linear,
    MultiTokenLoss,
    PositionEmbedding,
    RMSNorm,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from specc.runtime.moe_losses import RouterLoss
from specc.runtime.moe_router import ExpertLoad

from .calls import ModuleCall, Step, values
from .facts_moe import chooses
from .recurrences import PRODUCTS
from .tree import Part

GROUPED = (GroupedColumnParallelLinear, GroupedRowParallelLinear)
LINEAR = (ColumnParallelLinear, RowParallelLinear, Linear, *GROUPED, nn.Linear)
EMBEDDING = (VocabParallelEmbedding, PositionEmbedding, nn.Embedding)
CONVOLUTION = (CausalConv1d, nn.Conv1d)
NORM = (LayerNorm, RMSNorm, GatedRMSNorm, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
DROPOUT = (Dropout, nn.Dropout)
OF_ROUTER = (RouterLoss, ExpertLoad, Jitter)

# What the children of an MLP may be: one with halves of its own is a layer.
_OF_MLP = {"linear", "activation", "dropout", "norm", "identity"}

# Functions of torch that make a layer nonlinear, in the field's words.
ACTIVATIONS = {
    "gelu": "GELU",
    "silu": "SiLU",
    "relu": "ReLU",
    "relu_": "ReLU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "leaky_relu": "leaky ReLU",
    "elu": "ELU",
    "mish": "Mish",
    "softplus": "softplus",
    "hardswish": "hard swish",
    "glu": "GLU",
}


def is_library(module: nn.Module) -> bool:
    """Whether a module's class is torch's or the runtime's: its attributes say what it does."""
    return type(module).__module__.startswith(("torch.nn.", "specc.runtime"))


def library_kind(module: nn.Module) -> str | None:
    """The kind of a class that is known by name; None for all others."""
    known: Sequence[tuple[Any, str]] = (
        (LINEAR, "linear"),
        (EMBEDDING, "embedding"),
        (NORM, "norm"),
        (CONVOLUTION, "convolution"),
        (DROPOUT, "dropout"),
        (OF_ROUTER, "router part"),
        (MultiTokenLoss, "loss"),
        (nn.MultiheadAttention, "attention"),
        (nn.Identity, "identity"),
    )
    if is_library(module):
        for classes, kind in known:
            if isinstance(module, classes):
                return kind
    if type(module).__module__ == "torch.nn.modules.activation":
        return "activation"
    return None


def kind_of(
    call: ModuleCall | None, children: Sequence[Part], *, attends: bool, element: bool
) -> str:
    """The kind of a module whose class says nothing.

    `children` have theirs; `attends`: one of its own steps is an attention; `element`: it stands in
    a list.
    """
    steps = call.steps if call is not None else ()
    if attends or any(_is_core(child) for child in children):
        return "attention"
    if any(step.kind == "runtime" and step.name in PRODUCTS for step in steps):
        return "mixer"
    if any(child.kind == "router" for child in children):
        return "moe"
    if chooses(steps) and all(child.kind == "router part" for child in children):
        return "router"
    if not children and call is not None:
        return _leaf(steps)
    below = [part.kind for child in children for _, _, part in child.walk()]
    if "attention" in below or "mixer" in below:
        return "layer" if element or ("mlp" in below and not _has_layers(children)) else "module"
    if any(child.kind not in _OF_MLP for child in children):
        return "layer" if element else "module"
    linear = below.count("linear") + sum(step.name == "linear" for step in steps)
    if linear >= 2 and (any(s.name in ACTIVATIONS for s in steps) or "activation" in below):
        return "mlp"
    return "layer" if element else "module"


def _has_layers(children: Sequence[Part]) -> bool:
    return any(child.kind == "layer" for child in children)


def _is_core(part: Part) -> bool:
    """Whether a child is the inner half of an attention: it attends, and projects nothing."""
    if part.kind != "attention":
        return False
    below = [one for _, _, one in part.walk()]
    return all(one.kind != "linear" and all(len(w.shape) < 2 for w in one.weights) for one in below)


def _leaf(steps: Sequence[Step]) -> str:
    names = {step.name for step in steps}
    own = {
        v.source
        for step in steps
        for v in values((step.args, step.kwargs))
        if isinstance(v.source, str)
    }
    weighted = "weight" in own or any(not source.startswith("input ") for source in own)
    if names & {"rms_norm", "layer_norm", "group_norm"} or {"rsqrt", "mean"} <= names:
        return "norm"
    if "linear" in names and len(names - {"linear", "to"}) == 0 and weighted:
        return "linear"
    if "embedding" in names and weighted and not names & {"softmax", "matmul"}:
        return "embedding"
    computing = names - {"to", "float", "mul"}
    if computing == {"dropout"}:
        return "dropout"
    if computing and computing <= set(ACTIVATIONS) and not weighted:
        return "activation"
    if [s.name for s in steps].count("linear") >= 2 and names & set(ACTIVATIONS):
        return "mlp"
    return "module"
