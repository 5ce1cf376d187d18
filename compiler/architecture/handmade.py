"""Attention that a page writes out by itself: softmax(q k^T + mask) v, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .calls import AttentionCall, ModuleCall, Step, Value, values

_PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum", "baddbmm"}
# What may stand between the scores and the softmax, or the softmax and the second product.
_BETWEEN = {
    *("add", "add_", "sub", "mul", "mul_", "div", "div_", "truediv", "__truediv__", "tanh"),
    *("masked_fill", "masked_fill_", "where", "to", "float", "type_as", "dropout", "softmax"),
    *("view", "reshape", "contiguous", "clamp", "type", "bfloat16", "half", "__getitem__"),
}
# What rearranges keys on their way from a projection to the product.
_MOVES = {
    *("transpose", "permute", "reshape", "view", "contiguous", "expand", "repeat_interleave"),
    *("flatten", "unflatten", "unsqueeze", "squeeze", "__getitem__", "mT", "T", "repeat", "to"),
}
_MASKS = {"masked_fill", "masked_fill_", "where"}

IsCausal = Callable[[ModuleCall, Value], bool]


def handmade_attention(call: ModuleCall, is_causal: IsCausal) -> Iterator[AttentionCall]:
    """The attentions among a forward's own steps. `is_causal` says of a mask what it hides."""
    for number, step in enumerate(call.steps):
        if step.kind != "torch" or step.name not in ("softmax", "_softmax"):
            continue
        scores = _back(call, step, _BETWEEN)
        used = [s for s in _forward(call, number) if s.name in _PRODUCTS]
        if scores is None or not used:
            continue
        product, between = scores
        found = _described(call, product, between, used[0], is_causal)
        if found is not None:
            yield found


def mask_is_causal(call: ModuleCall, value: Value, triangular: Callable[[str], bool]) -> bool:
    """Whether a mask comes from `tril` or `triu`, here or in a buffer that `triangular` knows."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one.source, str):
            if triangular(one.source):
                return True
        elif one.source not in seen and one.source < len(call.steps):
            seen.add(one.source)
            step = call.steps[one.source]
            if step.name in ("tril", "triu", "tril_", "triu_"):
                return True
            if step.kind != "child":
                pending += values((step.args, step.kwargs))
    return False


def _back(call: ModuleCall, step: Step, through: set[str]) -> tuple[Step, list[Step]] | None:
    """The product that a softmax's scores come from, and the steps between."""
    between: list[Step] = []
    while True:
        shape = step.results[0].shape
        sources = [v for v in values(step.args[:2]) if isinstance(v.source, int)]
        # Of a mask and the scores under it, the scores: they come from a product.
        steps = [call.steps[v.source] for v in sources if isinstance(v.source, int)]
        product = next((s for s in steps if s.name in _PRODUCTS and s.results), None)
        if product is not None:
            return product, between
        same = [s for s in steps if s.name in through and s.results[0].shape[-2:] == shape[-2:]]
        if not same:
            return None
        step = max(same, key=lambda s: len(s.results[0].shape) * 10**6 + call.steps.index(s))
        between.append(step)


def _forward(call: ModuleCall, number: int) -> Iterator[Step]:
    """The steps that take what a step gave, through those that hand it on as it is."""
    known = {number}
    for place, step in enumerate(call.steps[number + 1 :], number + 1):
        taken = {v.source for v in values((step.args, step.kwargs))}
        if taken & known:
            yield step
            # A child here is dropout: it hands on what it is given.
            if step.name in _BETWEEN or (step.kind == "child" and _keeps_shape(step)):
                known.add(place)


def _keeps_shape(step: Step) -> bool:
    shapes = {v.shape for v in values(step.kwargs)} | {v.shape for v in step.results}
    return len(shapes) == 1


def _described(
    call: ModuleCall, product: Step, between: list[Step], second: Step, is_causal: IsCausal
) -> AttentionCall | None:
    tensors = [v for v in values(product.args) if isinstance(v, Value)]
    shape = product.results[0].shape
    if len(tensors) < 2 or len(shape) < 3:
        return None
    q, k = tensors[-2:]
    v = list(values(second.args))[-1]
    # [b, n, s, s], or [b * n, s, s]: the batch is 1.
    heads = math.prod(shape[1:-2]) if len(shape) > 3 else shape[0]
    groups = heads // _repeats(call, k)
    masks = [m for s in between for m in _mask_of(s)]
    causal = any(is_causal(call, mask) for mask in masks)
    caps = [s for s in between if s.name == "tanh"]
    return AttentionCall(
        call.path,
        "matrix products",
        heads=heads,
        groups=groups,
        head_dim=q.shape[-1],
        value_dim=v.shape[-1],
        places=shape[-2],
        key_places=shape[-1],
        causal=True if causal else None if masks else False,
        softcap=_cap(call, caps[0]) if caps else None,
        scale=None if caps else _scale(between),
        masked=bool(masks) and not causal,
    )


def _scale(between: list[Step]) -> float | None:
    """What the numbers between product and softmax multiply the scores by; None where there are
    none: queries or keys may have been scaled before.
    """
    scale = None
    for step in between:
        numbers = [a for a in step.args if isinstance(a, (int, float))]
        if len(numbers) == 1 and step.name in ("mul", "mul_"):
            scale = (scale or 1.0) * numbers[0]
        elif len(numbers) == 1 and step.name in ("div", "div_", "truediv", "__truediv__"):
            scale = (scale or 1.0) / numbers[0]
    return scale


def _mask_of(step: Step) -> list[Value]:
    if step.name in _MASKS:
        found = list(values((step.args, step.kwargs)))
        return found[:1] if step.name == "where" else found[1:2]
    if step.name in ("add", "add_"):
        # An additive mask has the places and no heads.
        shape = step.results[0].shape
        return [v for v in values(step.args) if v.shape != shape and v.shape[-1:] == shape[-1:]]
    return []


def _repeats(call: ModuleCall, keys: Value) -> int:
    """How often each key/value head stands among the keys of a product."""
    repeats = 1
    while isinstance(keys.source, int):
        step = call.steps[keys.source]
        if step.kind != "torch" or step.name not in _MOVES:
            break
        source = next(values(step.args), None)
        if source is None:
            break
        if step.name in ("expand", "repeat_interleave", "repeat"):
            before, after = math.prod(source.shape), math.prod(keys.shape)
            repeats *= max(1, after // max(1, before))
        keys = source
    return repeats


def _cap(call: ModuleCall, tanh: Step) -> float | None:
    """Of c * tanh(scores / c), c."""
    for value in values(tanh.args):
        if isinstance(value.source, int):
            step = call.steps[value.source]
            if step.name in ("div", "truediv", "__truediv__", "div_"):
                numbers = [a for a in step.args if isinstance(a, (int, float))]
                return float(numbers[0]) if numbers else None
    return None
