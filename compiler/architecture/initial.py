"""How parameters start, in words; and which buffers hold the triangle of a causal mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from torch import nn

from specc.runtime import Constant, Normal
from specc.runtime.parameters import Uniform

from ..validate.op_log import Call, OpLog, history
from .made import made_digest
from .run import Run
from .words import number

# Operations that fill a whole tensor; the last of them says how it starts.
_FILLS = {
    "aten.normal_.default": "normal",
    "init.trunc_normal_.meta": "truncated",
    "init.orthogonal_.meta": "orthogonal",
    "init.sparse_.meta": "sparse",
    "init.dirac_.meta": "dirac",
    "aten.zero_.default": "constant",
    "aten.fill_.Scalar": "constant",
    "aten.uniform_.default": "uniform",
}


class Laws:
    """How a run's parameters start, in words."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.layers = longest_list(run.model)
        self.laws = {name: record.law or self.made(name) for name, record in run.table.items()}
        normal = [law.std for law in self.laws.values() if isinstance(law, Normal)]
        self.deviations = sorted(set(normal))

    def words(self, name: str) -> str:
        """`normal 0.02`, `normal 0.02/√(2·layers)`, `0`, `uniform ±1/√in`."""
        law = self.laws[name]
        if law is None:
            owner = self.run.model.get_submodule(name.rpartition(".")[0])
            width = getattr(owner, "in_features", None) or self.run.table[name].shape[-1]
            return made_words(self.history(name), width)
        if isinstance(law, Constant):
            return number(law.value)
        if isinstance(law, Uniform):
            return uniform_words(law)
        mean = f" around {number(law.mean)}" if law.mean else ""
        # GPT-2's, and of layers with one branch: smaller by the depth, so that a deeper model is
        # not another law.
        depths = ((2 * self.layers, "(2·layers)"), (self.layers, "layers"))
        for base, (depth, said) in product(self.deviations, depths if self.layers > 1 else ()):
            scaled = base / math.sqrt(depth)
            if base != law.std and math.isclose(law.std, scaled, rel_tol=1e-9):
                return f"normal {number(base)}/√{said}{mean}"
        return f"normal {number(law.std)}{mean}"

    def made(self, name: str) -> Normal | Constant | None:
        """The law of the last operation that filled a parameter, where it is one of ours."""
        last = last_written(self.history(name), prod(self.run.table[name].shape))
        if last is None:
            return None
        given = [n for n in map(_as_number, last.args[1:3]) if n is not None]
        if _FILLS[last.op] == "normal":
            mean, std = given if len(given) == 2 else (0.0, 1.0)
            return Normal(float(std), float(mean))
        if _FILLS[last.op] == "constant":
            return Constant(float(given[0]) if given else 0.0)
        return None

    def history(self, name: str) -> list[Call]:
        return history(self.run.made, self.run.model.get_parameter(name))


def uniform_words(law: Uniform) -> str:
    """`uniform ±0.5`, `log of uniform 1 to 16`, `steps of 0.001 to 0.1, uniform in their log`."""
    if law.then == "step_size":
        low, high = (float(f"{math.exp(end):.6g}") for end in (law.low, law.high))
        return f"steps of {number(low)} to {number(high)}, uniform in their log"
    within = f"±{number(law.high)}"
    if law.low != -law.high:
        within = f"{number(law.low)} to {number(law.high)}"
    return f"log of uniform {within}" if law.then == "log" else f"uniform {within}"


def longest_list(model: nn.Module) -> int:
    """How many layers a model's longest list has."""
    lists = (nn.ModuleList, nn.Sequential)
    return max((len(m) for m in model.modules() if isinstance(m, lists)), default=0)


def made_words(calls: Sequence[Call], width: int | None = None) -> str:
    """What a constructor's operations make, where no law says so: `uniform -0.1 to 0.1`.

    `width`: of a linear layer, what it takes in; torch's own law depends on it.
    """
    last = last_written(calls, None)
    for call in reversed(calls):
        if last is None and _writes(call):
            break  # something else than a fill wrote it last
        given = [n for n in map(_as_number, call.args[1:3]) if n is not None]
        if call.op == "aten.uniform_.default":
            low, high = given if len(given) == 2 else (0, 1)
            if width and low == -high and math.isclose(high * high * width, 1, rel_tol=1e-9):
                return "uniform ±1/√in"
            return f"uniform {number(low)} to {number(high)}"
        if call.op == "init.trunc_normal_.meta":
            return f"truncated normal {number(given[1])}"
        if call.op.startswith("init."):
            return " ".join([_FILLS[call.op], *map(number, given)])
        if call.op == "aten.ones.default":
            return "1"
        if call.op == "aten.randn.default":
            return "normal 1" + _then(calls, call)
        if call.op == "aten.rand.default":
            return "uniform 0 to 1" + _then(calls, call)
    return f"computed as {made_digest(calls)}"


def last_written(calls: Sequence[Call], size: int | None) -> Call | None:
    """The operation that filled a tensor last, None where another wrote it, or a part of it.

    `size`: how many numbers the tensor has; None: not compared.
    """
    last = next((call for call in reversed(calls) if _writes(call)), None)
    if last is None or last.op not in _FILLS:
        return None
    return last if size in (None, prod(last.args[0].shape)) else None


def _writes(call: Call) -> bool:
    """Whether it is an operation in place: `aten.mul_.Tensor`."""
    return call.op.split(".")[1].endswith("_")


def _then(calls: Sequence[Call], drawn: Call) -> str:
    later = calls[list(calls).index(drawn) + 1 :]
    scales = [
        _as_number(a)
        for call in later
        if call.op.startswith("aten.mul")
        for a in call.args
        if _as_number(a) is not None
    ]
    return "".join(f" times {number(scale)}" for scale in scales)


def _as_number(value: Any) -> float | int | None:
    if isinstance(value, int):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def is_triangle(log: OpLog, buffer: Any) -> bool:
    """Whether a buffer was made with `tril` or `triu`."""
    return any(call.op.startswith(("aten.tril", "aten.triu")) for call in history(log, buffer))
