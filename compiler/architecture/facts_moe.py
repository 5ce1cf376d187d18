"""The facts of a mixture of experts: how many there are, and how a router chooses among them."""

from __future__ import annotations

from collections.abc import Sequence

from specc.runtime import Jitter, MultiTokenLoss
from specc.runtime.moe_losses import AuxLoss, GlobalAuxLoss, RouterLoss, SequenceAuxLoss, ZLoss
from specc.runtime.moe_router import ExpertLoad

from .calls import Step, Value, values
from .known import Facts, Known

# Steps that choose: torch's, and the runtime's among few groups.
CHOICES = ("topk", "group_limited_topk")

_LOSSES = {
    AuxLoss: "load balancing loss",
    SequenceAuxLoss: "load balancing loss of each sequence",
    GlobalAuxLoss: "load balancing loss of the global batch",
    ZLoss: "z-loss",
}
_SCORES = ("softmax", "sigmoid")


def chooses(steps: Sequence[Step]) -> bool:
    """Whether a forward's own steps choose for each place by the highest values."""
    return any(step.name in CHOICES for step in steps)


def chosen_facts(steps: Sequence[Step]) -> Facts:
    """`topk`: how many of the highest values a forward's own steps choose for each place."""
    counts = (s.results[0].shape[-1] for s in steps if s.name in CHOICES and s.results)
    count = next(counts, None)
    return {} if count is None else {"topk": count}


def moe_facts(known: Known) -> Facts:
    """`experts`, the `topk` of them that a token goes to, what each is (`activation`, `size`);
    `padded`: all have as many rows.
    """
    for step in known.steps:
        if step.name == "dispatch":
            chosen, count = step.args[2], step.args[3]
            found: Facts = {"experts": count, "topk": chosen.shape[-1]}
            inner = next((c for c in known.children if c.fact("experts") is not None), None)
            if inner is not None:
                found |= {n: v for n, v in inner.facts if n in ("activation", "size")}
            if dict(step.kwargs).get("capacity") is not None:
                found["padded"] = True
            return found
    return {}


def router_facts(known: Known) -> Facts:
    """`scores`, what they were before and after the choice, and all that bends it."""
    choice = next(step for step in known.steps if step.name in CHOICES)
    found: Facts = {"scores": _scores(known.steps)}
    if choice.name == "group_limited_topk":
        groups, group_topk = choice.args[2:4]
        found["groups"] = (group_topk, groups)
    names = {weight.name for weight in known.weights}
    if "expert_bias" in names:
        found["expert_bias"] = True
    if "bias" in names:
        found["bias"] = True
    scaling = _scaling(known.steps, choice)
    if scaling is not None:
        found["scaling"] = scaling
    for step in known.steps:
        if step.name == "within_capacity":
            found["capacity"] = step.args[3]
            found["drops"] = dict(step.kwargs).get("policy", "probs")
        if step.name == "router_logits" and "dtype" in dict(step.kwargs):
            found["dtype"] = dict(step.kwargs)["dtype"].text
    return found


def loss_facts(known: Known) -> Facts:
    """Of what a router adds to the loss, counts or shakes, and of further tokens' loss."""
    module = known.module
    if isinstance(module, MultiTokenLoss):
        return {"type": "loss of further tokens", "coefficient": module.coeff}
    if isinstance(module, RouterLoss):
        return {"type": _LOSSES.get(type(module), module.name), "coefficient": module.coeff}
    if isinstance(module, ExpertLoad):
        return {"type": "bias moved by the load of a step", "rate": module.update_rate}
    if isinstance(module, Jitter):
        return {"type": "jitter", "epsilon": module.eps}
    return {}


def _scores(steps: Sequence[Step]) -> str:
    """Of which scores a token's probabilities are made, seen from the choice."""
    place = next(n for n, step in enumerate(steps) if step.name in CHOICES)
    before = [step.name for step in steps[:place] if step.name in _SCORES]
    if before:
        return f"{before[-1]} of all"
    chosen = {place}
    for number, step in enumerate(steps[place + 1 :], place + 1):
        if {v.source for v in values(step.args)} & chosen and step.results:
            if step.name in _SCORES:
                return f"{step.name} of the chosen"
            chosen.add(number)
    return "logits"


def _scaling(steps: Sequence[Step], choice: Step) -> float | None:
    """The number that the probabilities of the chosen are multiplied by."""
    shape = choice.results[0].shape
    for step in steps:
        numbers = [a for a in step.args if isinstance(a, float)]
        tensors = [a for a in step.args if isinstance(a, Value)]
        if step.name == "mul" and len(numbers) == 1 and tensors and tensors[0].shape == shape:
            return numbers[0]
    return None
