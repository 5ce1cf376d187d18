"""Layers of one kind run once, so that depth costs little.

Where a layer has run, another of its kind that is called in the same way gives fresh tensors of
the form that the first one's outputs had. `compiler/validate/layers.py` says what a kind is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from specc.runtime import Positions


class _Form(NamedTuple):
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def fresh(self) -> Tensor:
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
        # A layer's output is no leaf: it may be written in place.
        return made.requires_grad_().clone() if self.requires_grad else made


@dataclass(frozen=True)
class _Outcome:
    """Which layer ran, and of each leaf of what it returned: a form, an input's number, a value."""

    path: str
    leaves: tuple[tuple[str, Any], ...]
    structure: TreeSpec


class Once:
    """What layers of one kind gave. `stands_for` says which layer ran in whose place.

    `quietly(f)` calls f where no instrument sees it; `meaning` says what is known of an input
    beside its form: two that differ in it are different questions.
    """

    def __init__(
        self,
        kinds: dict[str, int],
        quietly: Callable[[Callable[[], Any]], Any],
        meaning: Callable[[Tensor], Hashable] = lambda _: None,
    ) -> None:
        self.stands_for: dict[str, str] = {}
        self._kinds, self._quietly, self._meaning = kinds, quietly, meaning
        self._outcomes: dict[Hashable, _Outcome] = {}
        self._calls: dict[str, int] = {}
        self._ran: set[str] = set()
        self._held: list[Any] = []  # so that no id is used twice

    def start(self) -> None:
        """Another forward of the whole model begins."""
        self._calls.clear()

    def run(
        self, path: str, module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """What the module's forward gives: its own, or another's of its kind."""
        if path not in self._kinds:
            return forward(*args, **kwargs)
        given, structure = tree_flatten((args, kwargs))
        given = self._each_its_own(given)
        args, kwargs = tree_unflatten(given, structure)
        self._held += [v for v in given if not isinstance(v, Tensor)]
        number = self._calls[path] = self._calls.get(path, 0) + 1
        state = (module.training, torch.is_grad_enabled())
        # How often it was called is part of the question: a layer may do otherwise later.
        form = tuple(self._question(v) for v in given)
        key = (self._kinds[path], number, state, str(structure), form)
        known = self._outcomes.get(key)
        if known is not None:
            if known.path != path and path not in self._ran:
                self.stands_for.setdefault(path, known.path)
            return self._quietly(lambda: _again(known, given))
        self._ran.add(path)
        inputs = [v for v in given if isinstance(v, Tensor)]
        versions = [t._version for t in inputs]
        out = forward(*args, **kwargs)
        if versions == [t._version for t in inputs]:  # else it wrote its inputs: it always runs
            leaves, structure = tree_flatten(out)
            self._outcomes[key] = _Outcome(
                path, tuple(_answer(v, given) for v in leaves), structure
            )
        return out

    def _each_its_own(self, given: list[Any]) -> list[Any]:
        """The inputs, with another view of a tensor that is there a second time: the first layer
        may be given as two inputs what the others are given two tensors for.
        """
        seen: set[int] = set()
        found = []
        for value in given:
            plain = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
            if plain and id(value) in seen and self._meaning(value) is None:
                value = self._quietly(partial(value.view_as, value))
                self._held.append(value)
            seen.add(id(value))
            found.append(value)
        return found

    def _question(self, value: Any) -> Hashable:
        return (
            (_question(value), self._meaning(value))
            if isinstance(value, Tensor)
            else _question(value)
        )


def _form(tensor: Tensor) -> _Form:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return _Form(shape, stride, tensor.dtype, tensor.requires_grad)


def _question(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        form = _form(value)
        steps = zip(form.shape, form.stride, strict=True)
        # Where there is one entry, the way to the next says nothing.
        return (*form[:1], tuple(0 if n == 1 else step for n, step in steps), *form[2:])
    if value is None or isinstance(value, (bool, int, float, str)):
        return (type(value), value)
    if isinstance(value, Positions):
        tensors = (value.places, value.local_places, value.starts)
        return (Positions, *(_question(t) for t in tensors))
    return id(value)


def _answer(value: Any, inputs: list[Any]) -> tuple[str, Any]:
    for number, given in enumerate(inputs):
        if value is given and isinstance(value, (Tensor, Positions)):
            return "input", number
    return ("made", _form(value)) if isinstance(value, Tensor) else ("value", value)


def _again(outcome: _Outcome, inputs: list[Any]) -> Any:
    given = {"input": lambda v: inputs[v], "made": lambda v: v.fresh(), "value": lambda v: v}
    leaves = [given[how](value) for how, value in outcome.leaves]
    return tree_unflatten(leaves, outcome.structure)
