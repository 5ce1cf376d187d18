"""The facts of a part, by its kind: from the attributes of classes that are known, else from what
its forward does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from specc.runtime import GatedRMSNorm, PositionEmbedding, VocabParallelEmbedding

from .calls import Step, Value
from .facts_mlp import mlp_facts
from .facts_moe import chosen_facts, loss_facts, moe_facts, router_facts
from .kinds import ACTIVATIONS
from .known import Facts, Known
from .recurrences import TYPES, recurrence


def facts_of(kind: str, known: Known) -> Facts:
    """In the order in which a reader wants them."""
    makers: Mapping[str, Any] = {
        "attention": _attention,
        "mixer": _mixer,
        "mlp": mlp_facts,
        "moe": moe_facts,
        "router": router_facts,
        "router part": loss_facts,
        "loss": loss_facts,
        "norm": _norm,
        "convolution": _convolution,
        "linear": _linear,
        "output": _output,
        "embedding": _embedding,
        "dropout": _dropout,
        "activation": _activation,
    }
    maker = makers.get(kind)
    found: Facts = {} if maker is None else maker(known)
    return chosen_facts(known.steps) | found


def _attention(known: Known) -> Facts:
    if not known.attention:
        return {}
    first, *others = known.attention
    found: Facts = {"heads": first.heads, "groups": first.groups, "head_dim": first.head_dim}
    if first.value_dim != first.head_dim:
        found["value_dim"] = first.value_dim
    for name in ("latent", "shared", "query_latent"):
        if (channels := getattr(first, name)) is not None:
            found[name] = channels
    if first.causal is not None:
        found["causal"] = first.causal
    if first.window is not None:
        found["window"] = first.window
    rotary = [step.rotary for step in known.steps if step.rotary is not None]
    if rotary:
        found["rotary"] = tuple(w for w in rotary[0] if w != f"dim={first.head_dim}")
    if first.softcap is not None:
        found["softcap"] = first.softcap
    if first.sinks is not None:
        found["sinks"] = first.sinks
    if first.scale is not None and abs(first.scale - first.head_dim**-0.5) > 1e-9:
        found["scale"] = first.scale
    if first.masked:
        found["mask"] = True
    if first.dropout:
        found["dropout"] = first.dropout
    if others:
        found["attentions"] = len(known.attention)
    return found


def _mixer(known: Known) -> Facts:
    for step in known.steps:
        shapes = [value.shape for value in step.args if isinstance(value, Value)]
        call = recurrence(step.name, shapes, "") if step.kind == "runtime" else None
        if call is not None:
            found: Facts = {
                "type": TYPES[call.function],
                "heads": call.heads,
                "groups": call.groups,
                "key_dim": call.key_dim,
                "value_dim": call.value_dim,
            }
            kernels = [k for child in known.children if (k := child.fact("kernel")) is not None]
            return found | ({"convolution": kernels[0]} if kernels else {})
    return {}


def _convolution(known: Known) -> Facts:
    kernel: Any = known.module.kernel_size
    shape = known.shape("weight")
    return {
        "channels": shape[0],
        "kernel": kernel if isinstance(kernel, int) else kernel[0],
        "bias": any(weight.name == "bias" for weight in known.weights),
    }


def _norm(known: Known) -> Facts:
    module, steps = known.module, known.steps
    found: Facts = {"type": norm_type(module, steps)}
    size = known.shape("weight") or next((w.shape for w in known.weights), ())
    size = size or tuple(getattr(module, "normalized_shape", ()))
    if size:
        found["size"] = size[-1]
    elif steps and steps[-1].results:
        found["size"] = steps[-1].results[-1].shape[-1]
    epsilon = _epsilon(module, steps)
    if epsilon is not None:
        found["epsilon"] = epsilon
    if getattr(module, "zero_centered", False):
        found["zero_centered"] = True
    if isinstance(module, GatedRMSNorm):
        found |= {"gated": True, "groups": module.groups}
    return found


def norm_type(module: nn.Module, steps: Sequence[Step]) -> str:
    """RMSNorm, LayerNorm or GroupNorm: by what is computed, whatever the class is called."""
    names = {step.name for step in steps}
    for function, words in (
        ("rms_norm", "RMSNorm"),
        ("layer_norm", "LayerNorm"),
        ("group_norm", "GroupNorm"),
    ):
        if function in names:
            return words
    if not names:
        return type(module).__name__
    return "LayerNorm" if names & {"var", "std", "sub", "var_mean"} else "RMSNorm"


def _epsilon(module: nn.Module, steps: Sequence[Step]) -> float | None:
    for step in steps:
        if step.name in ("rms_norm", "layer_norm", "group_norm"):
            named = dict(step.kwargs).get("eps")
            given = [a for a in (named, *step.args[2:]) if isinstance(a, float)]
            return given[-1] if given else None
    for step in steps:
        small = [a for a in (*step.args, *dict(step.kwargs).values()) if isinstance(a, float)]
        if step.name in ("add", "add_", "clamp", "clamp_min") and small and 0 < small[0] < 0.01:
            return small[0]
    declared = getattr(module, "eps", None)
    return declared if isinstance(declared, float) else None


def _linear(known: Known) -> Facts:
    shape = known.shape("weight") or next((w.shape for w in known.weights if len(w.shape) == 2), ())
    found: Facts = {}
    if len(shape) == 3:
        found |= {"experts": shape[0]}
        shape = shape[1:]
    if len(shape) == 2:
        found |= {"in": shape[1], "out": shape[0]}
    found["bias"] = any(w.name == "bias" or len(w.shape) == 1 for w in known.weights)
    if getattr(known.module, "gather_output", False):
        found["gather_output"] = True
    return found


def _output(known: Known) -> Facts:
    linear = _linear(known)
    found: Facts = {}
    if "out" in linear:
        found |= {"vocabulary": linear.pop("out"), "size": linear.pop("in")}
    if any(weight.tied_to for weight in known.weights):
        found["tied"] = True
    return found | linear


def _embedding(known: Known) -> Facts:
    shape = known.shape("weight") or next((w.shape for w in known.weights), ())
    if len(shape) != 2:
        return {}
    module = known.module
    if known.rows_are_tokens or isinstance(module, VocabParallelEmbedding):
        rows = "vocabulary"
    elif isinstance(module, PositionEmbedding) or known.call is not None:
        rows = "positions"
    else:
        rows = "rows"
    return {rows: shape[0], "size": shape[1]}


def _dropout(known: Known) -> Facts:
    p = getattr(known.module, "p", None)
    if not isinstance(p, (int, float)):
        drops = [s for s in known.steps if s.name == "dropout"]
        given = [a for s in drops for a in (*s.args[1:], dict(s.kwargs).get("p"))]
        p = next((a for a in given if isinstance(a, float)), None)
    return {} if p is None else {"p": float(p)}


def _activation(known: Known) -> Facts:
    for step in known.steps:
        if step.name in ACTIVATIONS:
            tanh = dict(step.kwargs).get("approximate") == "tanh"
            return {"type": ACTIVATIONS[step.name] + (" (tanh)" if tanh else "")}
    return {"type": type(known.module).__name__}
