"""How parameters start, in words; and which buffers hold the triangle of a causal mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from specc.runtime import Constant, Normal, ParameterRecord

from ..validate.op_log import Call, OpLog, history
from .words import number

_FILLS = {
    "aten.uniform_.default": "uniform",
    "aten.normal_.default": "normal",
    "aten.trunc_normal_.default": "truncated normal",
}


class Laws:
    """The initial laws of a model's parameters. `layers`: how many layers its longest list has."""

    def __init__(self, table: Mapping[str, ParameterRecord], layers: int) -> None:
        laws = [record.law for record in table.values()]
        self.deviations = sorted({law.std for law in laws if isinstance(law, Normal)})
        self.layers = layers

    def words(self, law: Normal | Constant) -> str:
        """`normal 0.02`, `normal 0.02/√(2·layers)`, `0`."""
        if isinstance(law, Constant):
            return number(law.value)
        mean = f" around {number(law.mean)}" if law.mean else ""
        for base in self.deviations:
            # GPT-2's: smaller by the depth, so that a deeper model is not another law.
            scaled = base / math.sqrt(2 * self.layers) if self.layers > 1 else 0.0
            if base != law.std and math.isclose(law.std, scaled, rel_tol=1e-9):
                return f"normal {number(base)}/√(2·layers){mean}"
        return f"normal {number(law.std)}{mean}"


def longest_list(model: nn.Module) -> int:
    """How many layers a model's longest list has."""
    lists = (nn.ModuleList, nn.Sequential)
    return max((len(m) for m in model.modules() if isinstance(m, lists)), default=0)


def made_words(calls: Sequence[Call], width: int | None = None) -> str:
    """What a constructor's operations make, where no law says so: `uniform -0.1 to 0.1`.

    `width`: of a linear layer, what it takes in; torch's own law depends on it.
    """
    for call in reversed(calls):
        given = [n for n in map(_as_number, call.args[1:3]) if n is not None]
        if call.op == "aten.uniform_.default":
            low, high = given if len(given) == 2 else (0, 1)
            if width and low == -high and math.isclose(high * high * width, 1, rel_tol=1e-9):
                return "uniform ±1/√in"
            return f"uniform {number(low)} to {number(high)}"
        if call.op in ("aten.normal_.default", "aten.trunc_normal_.default"):
            mean, std = given if len(given) == 2 else (0, 1)
            return f"normal {number(std)}" + (f" around {number(mean)}" if mean else "")
        if call.op in ("aten.zero_.default", "aten.zeros.default"):
            return "0"
        if call.op == "aten.ones.default":
            return "1"
        if call.op == "aten.fill_.Scalar":
            return number(given[0])
        if call.op == "aten.randn.default":
            return "normal 1" + _then(calls, call)
        if call.op == "aten.rand.default":
            return "uniform 0 to 1" + _then(calls, call)
    return "computed"


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
