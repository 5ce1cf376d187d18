"""The facts of a part, by its kind: from the attributes of classes that are known, else from what
its forward does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from specc.runtime import PositionEmbedding, VocabParallelEmbedding

from .calls import AttentionCall, ModuleCall, Step, Value, values
from .kinds import ACTIVATIONS
from .tree import Part, Weight
from .tree import Value as Fact

Facts = dict[str, Fact]

_GATED = {"silu": "SwiGLU", "gelu": "GEGLU", "relu": "ReGLU", "sigmoid": "GLU", "tanh": "tanh GLU"}
_OF_MODULES = {"SiLU": "silu", "GELU": "gelu", "ReLU": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


@dataclass(frozen=True)
class Known:
    """What is known of a module when its facts are asked for. `rows_are_tokens`: of an embedding,
    it looks up token ids."""

    module: nn.Module
    call: ModuleCall | None
    weights: tuple[Weight, ...]
    children: tuple[Part, ...]
    attention: tuple[AttentionCall, ...] = ()
    rows_are_tokens: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.call.steps if self.call is not None else ()

    def shape(self, name: str) -> tuple[int, ...]:
        return next((w.shape for w in self.weights if w.name == name), ())


def facts_of(kind: str, known: Known) -> Facts:
    """In the order in which a reader wants them."""
    makers: Mapping[str, Any] = {
        "attention": _attention,
        "mlp": _mlp,
        "norm": _norm,
        "linear": _linear,
        "output": _output,
        "embedding": _embedding,
        "dropout": _dropout,
        "activation": _activation,
    }
    maker = makers.get(kind)
    return {} if maker is None else maker(known)


def _attention(known: Known) -> Facts:
    if not known.attention:
        return {}
    first, *others = known.attention
    found: Facts = {"heads": first.heads, "groups": first.groups, "head_dim": first.head_dim}
    if first.value_dim != first.head_dim:
        found["value_dim"] = first.value_dim
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


def _mlp(known: Known) -> Facts:
    found: Facts = {}
    activation = activation_words(known)
    if activation is not None:
        found["activation"] = activation
    size = _inner_size(known)
    if size is not None:
        found["size"] = size
    return found


def activation_words(known: Known) -> str | None:
    """SwiGLU, GELU (tanh), squared ReLU: what stands between the projections."""
    steps = known.steps
    for number, step in enumerate(steps):
        name = _function(step, known)
        if name is None:
            continue
        later = [s for s in steps[number + 1 :] if _takes(s, number)]
        if name == "glu":
            return "GLU"
        suffix = " (tanh)" if _approximate(step, known) == "tanh" else ""
        if any(s.name in ("mul", "mul_") and _products(s) == 2 for s in later):
            return _GATED.get(name, f"{ACTIVATIONS.get(name, name)}, gated") + suffix
        squared = any(s.name == "square" or (s.name == "pow" and s.args[1:] == (2,)) for s in later)
        if squared or any(_is_square(s, number) for s in later):
            return f"squared {ACTIVATIONS.get(name, name)}"
        return ACTIVATIONS.get(name, name) + suffix
    return None


def _function(step: Step, known: Known) -> str | None:
    """The activation that a step is: a function, or a child that is one."""
    if step.kind == "torch" and step.name in ACTIVATIONS:
        return step.name.rstrip("_")
    child = _child(step, known)
    if child is not None and child.kind == "activation":
        kind = child.fact("type")
        names = {words: name for name, words in ACTIVATIONS.items() if not name.endswith("_")}
        return names.get(str(kind).removesuffix(" (tanh)"), str(kind))
    return None


def _approximate(step: Step, known: Known) -> Any:
    child = _child(step, known)
    if child is not None:
        return "tanh" if str(child.fact("type")).endswith("(tanh)") else "none"
    return dict(step.kwargs).get("approximate", "none")


def _child(step: Step, known: Known) -> Part | None:
    if step.kind != "child":
        return None
    return next((c for c in known.children if c.segment == step.name or c.name == step.name), None)


def _takes(step: Step, number: int) -> bool:
    return any(v.source == number for v in values((step.args, step.kwargs)))


def _products(step: Step) -> int:
    """How many different tensors a product multiplies."""
    return len({(v.source, v.part) for v in step.args if isinstance(v, Value)})


def _is_square(step: Step, number: int) -> bool:
    tensors = [v for v in step.args if isinstance(v, Value)]
    return step.name == "mul" and len(tensors) == 2 and all(v.source == number for v in tensors)


def _inner_size(known: Known) -> int | None:
    """What the last projection takes in."""
    for step in reversed(known.steps):
        if step.name == "linear" and step.kind == "torch":
            weight = list(values(step.args))[1:2]
            return weight[0].shape[-1] if weight else None
        child = _linear_below(_child(step, known), step, known)
        if child is not None:
            size = child.fact("in")
            return size if isinstance(size, int) else None
    return None


def _linear_below(child: Part | None, step: Step, known: Known) -> Part | None:
    if child is not None:
        return child if child.kind == "linear" else None
    if step.kind != "child":
        return None
    inside = [c for c in known.children if c.kind == "linear" and c.name == step.name]
    return inside[-1] if inside else None


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
    if len(shape) == 2:
        found |= {"in": shape[1], "out": shape[0]}
    found["bias"] = any(len(w.shape) == 1 for w in known.weights)
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
    if not isinstance(p, float):
        drops = [s for s in known.steps if s.name == "dropout"]
        given = [a for s in drops for a in (*s.args[1:], dict(s.kwargs).get("p"))]
        p = next((a for a in given if isinstance(a, float)), None)
    return {} if p is None else {"p": p}


def _activation(known: Known) -> Facts:
    for step in known.steps:
        if step.name in ACTIVATIONS:
            tanh = dict(step.kwargs).get("approximate") == "tanh"
            return {"type": ACTIVATIONS[step.name] + (" (tanh)" if tanh else "")}
    return {"type": type(known.module).__name__}
