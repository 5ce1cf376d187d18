"""Sizes that layers of known kinds have, as formulas of facts of the parts above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..architecture.tree import Value

Facts = Mapping[str, Value]
_Numbers = Mapping[str, int]

_FORMULAS: tuple[Callable[[_Numbers], int], ...] = (
    lambda f: f["hidden"],
    lambda f: f["vocabulary"],
    lambda f: f["positions"],
    lambda f: f["rows"],
    lambda f: f["size"],
    lambda f: f["in"],
    lambda f: f["out"],
    lambda f: f["gates"] * f["size"],  # gate and up are one product
    lambda f: f["experts"],
    lambda f: f["topk"],
    lambda f: f["heads"],
    lambda f: f["head_dim"],
    lambda f: f["heads"] * f["head_dim"],
    lambda f: f["groups"] * f["head_dim"],
    lambda f: 2 * f["groups"] * f["head_dim"],
    lambda f: (f["heads"] + 2 * f["groups"]) * f["head_dim"],  # queries, keys and values are one
)


def size_follows(before: int, after: int, facts_before: Facts, facts_after: Facts) -> bool:
    """Whether one formula gives both sizes, each from the facts of its side."""
    if before == after:
        return True
    first, second = _numbers(facts_before), _numbers(facts_after)
    return any(
        _given(formula, first) == before and _given(formula, second) == after
        for formula in _FORMULAS
    )


def dimensions(value: Value) -> tuple[int, ...]:
    """A size, or a shape, as a tuple; empty for anything else."""
    if type(value) is int:
        return (value,)
    if isinstance(value, tuple):
        return tuple(size for size in value if isinstance(size, int))
    return ()


def _numbers(facts: Facts) -> _Numbers:
    numbers = {name: value for name, value in facts.items() if type(value) is int}
    activation = facts.get("activation")
    if isinstance(activation, str):
        numbers["gates"] = 2 if "GLU" in activation else 1
    return numbers


def _given(formula: Callable[[_Numbers], int], facts: _Numbers) -> int | None:
    try:
        return formula(facts)
    except KeyError:
        return None
