"""Experts in a run: which modules deal tokens out to them, and how many of them each token uses."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from .calls import Form, Operation
from .run import Run

GROUPED_PRODUCT = "specc.grouped_product.default"


class Experts:
    """The modules of a run whose own forward calls the runtime's `dispatch`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._used: dict[str, Fraction] = {}  # of the experts, by the module's path
        for path, calls in run.calls["train"].items():
            for step in (step for call in calls for step in call.steps):
                if step.kind == "runtime" and step.name == "dispatch":
                    chosen, experts = step.args[2], step.args[3]
                    self._used[path] = Fraction(chosen.shape[-1], experts)

    def used(self, parameter: str) -> Fraction:
        """How much of a parameter a token uses: k / E of what experts hold, all of any other."""
        if self._run.table[parameter].expert_dim is None:
            return Fraction(1)
        return next((self._used[p] for p in _around(self._run.ran(parameter)) if p in self._used),
                    Fraction(1))  # fmt: skip

    def choose(self, operation: Operation) -> bool:
        """Whether an operation is a part of choosing experts and sending tokens to them."""
        return any(path in self._used for path in (operation.path, *_around(operation.path)))


def rows_and_weight(operation: Operation) -> tuple[Form, Form]:
    """Of a grouped product: [R, in] and [E, out, in]."""
    return operation.inputs[0], operation.inputs[1]


def _around(path: str) -> Iterable[str]:
    """The modules around a path, innermost first."""
    while path:
        path = path.rpartition(".")[0]
        yield path
