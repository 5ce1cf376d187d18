"""Latent attention: keys and values that are made of a few numbers, which generation keeps instead.

DeepSeek-V2 (arXiv 2405.04434, section 2.1): a token's keys and values are up-projections of one
narrow vector, beside a rotary part that all heads share. It is seen from the data flow, whatever
the classes are called: a linear layer gives the values, and is given less than it gives by another
one of the same module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .calls import ModuleCall, Step, Value, values
from .kinds import library_kind
from .run import Run


@dataclass(frozen=True)
class Latent:
    """Channels of a token: `width`, of which keys and values are made; `shared`, of the keys' part
    that all heads share; `queries`, of which queries are made, None where they are not so.
    """

    width: int
    shared: int
    queries: int | None


def latents(run: Run) -> dict[int, Latent]:
    """Of the attentions of a run that have them, by their number."""
    found: dict[int, Latent] = {}
    forwards = (*run.calls["train"].items(), *run.calls.get("labels", {}).items())
    for path, calls in forwards:

        def is_linear(name: str, path: str = path) -> bool:
            module = run.model.get_submodule(f"{path}.{name}" if path else name)
            return library_kind(module) == "linear"

        for call in calls:
            for step in call.steps:
                latent = None if step.attention is None else _latent(call, step, is_linear)
                if latent is not None and step.attention is not None:
                    found[step.attention] = latent
    return found


def _latent(call: ModuleCall, step: Step, is_linear: Callable[[str], bool]) -> Latent | None:
    given = [v for v in (*step.args, *dict(step.kwargs).values()) if isinstance(v, Value)][:3]
    if len(given) < 3:
        return None
    q, k, v = ({*_linears(call, value, is_linear)} for value in given)
    made = _narrow(call, v, is_linear)
    if made is None:
        return None
    width, downs = made
    others = k - v
    shared = sum(call.steps[number].results[0].shape[-1] for number in others)
    if others & downs:  # one projection gives both
        shared -= width
    of_queries = _narrow(call, q, is_linear)
    return Latent(width, shared, None if of_queries is None else of_queries[0])


def _narrow(
    call: ModuleCall, ups: set[int], is_linear: Callable[[str], bool]
) -> tuple[int, set[int]] | None:
    """What one linear layer is given where that is narrower than what it gives, and which linear
    layers give it.
    """
    if len(ups) != 1:
        return None
    (up,) = (call.steps[number] for number in ups)
    given = next(values(up.kwargs), None)
    downs = set() if given is None else {*_linears(call, given, is_linear)}
    if given is None or not downs or given.shape[-1] >= up.results[0].shape[-1]:
        return None
    return given.shape[-1], downs


def _linears(call: ModuleCall, value: Value, is_linear: Callable[[str], bool]) -> set[int]:
    """The steps of the nearest linear layers that a value comes from."""
    found: set[int] = set()
    seen: set[int] = set()
    pending = [value]
    while pending:
        source = pending.pop().source
        if isinstance(source, str) or source in seen:
            continue
        seen.add(source)
        step = call.steps[source]
        if step.kind == "child" and is_linear(step.name):
            found.add(source)
        else:
            pending += values((step.args, step.kwargs))
    return found
