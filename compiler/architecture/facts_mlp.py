"""The facts of an MLP: what stands between its projections, and how wide it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .calls import Step, Value, values
from .kinds import ACTIVATIONS
from .known import Facts, Known
from .tree import Part

_GATED = {"silu": "SwiGLU", "gelu": "GEGLU", "relu": "ReGLU", "sigmoid": "GLU", "tanh": "tanh GLU"}


def mlp_facts(known: Known) -> Facts:
    found: Facts = {}
    activation = activation_words(known)
    if activation is not None:
        found["activation"] = activation
    size = _inner_size(known)
    if size is not None:
        found["size"] = size
    experts = next((n for c in known.children if (n := c.fact("experts")) is not None), None)
    if experts is not None:
        found = {"experts": experts, **found}
    return found


def activation_words(known: Known) -> str | None:
    """SwiGLU, GELU (tanh), squared ReLU: what stands between the projections."""
    steps = known.steps
    for number, step in enumerate(steps):
        name = _function(step, known)
        if name is None:
            continue
        if name == "sigmoid" and (product := _times_its_input(steps, number)) is not None:
            name, number = "silu", product  # x * sigmoid(x), written out
        later = [s for s in steps[number + 1 :] if _takes(s, number)]
        if name == "glu":
            return "GLU"
        suffix = " (tanh)" if _approximate(step, known) == "tanh" else ""
        if any(s.name in ("mul", "mul_") and _products(s) == 2 and _alike(s) for s in later):
            return _GATED.get(name, f"{ACTIVATIONS.get(name, name)}, gated") + suffix
        squared = any(s.name == "square" or (s.name == "pow" and s.args[1:] == (2,)) for s in later)
        if squared or any(_is_square(s, number) for s in later):
            return f"squared {ACTIVATIONS.get(name, name)}"
        return ACTIVATIONS.get(name, name) + suffix
    return None


def _times_its_input(steps: Sequence[Step], number: int) -> int | None:
    """Where the result of a step is multiplied by what the step was given."""
    given = next(values(steps[number].args), None)
    for later, step in enumerate(steps[number + 1 :], number + 1):
        factors = list(values(step.args))
        if step.name in ("mul", "mul_") and _takes(step, number) and given in factors:
            return later
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


def _alike(step: Step) -> bool:
    """Whether both factors have one shape: a row of experts may have a probability as well."""
    return len({v.shape[-1:] for v in step.args if isinstance(v, Value)}) == 1


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
