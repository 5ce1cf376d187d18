"""The first difference between two sessions, and the module that it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from .copies import Copy
from .failure import differ
from .inputs import Inputs, make_inputs, refusal, tensors
from .session import Numbers, run_session

Difference = tuple[str, str, int]
Outputs = dict[tuple[str, str, int], list[Tensor]]  # by phase, module and number of the call


class Side:
    """One of the two models of a copy: each run builds it anew."""

    def __init__(self, build: Callable[[], nn.Module], copy: Copy) -> None:
        self.build, self.copy = build, copy
        self.refusal: str | None = None  # why it can't be called

    def run(self) -> Numbers:
        model = self.build()
        return run_session(model, self._inputs(model))

    def outputs(self) -> Outputs:
        """What every module returns in every call."""
        model = self.build()
        found: Outputs = {}
        phase = [""]

        def taker(path: str) -> Callable[..., None]:
            def take(module: nn.Module, inputs: Any, output: Any) -> None:
                call = sum((phase[0], path) == (p, m) for p, m, _ in found)
                found[phase[0], path, call] = [t.detach().clone() for t in tensors(output)]

            return take

        for path, module in model.named_modules():
            module.register_forward_hook(taker(path))

        def say(name: str) -> None:
            phase[0] = name

        run_session(model, self._inputs(model), say=say)
        return found

    def _inputs(self, model: nn.Module) -> Inputs | None:
        self.refusal = refusal(model)
        if self.refusal is not None:
            return None
        return make_inputs(model, [new for _, new in self.copy.configs], "cpu")


def first_difference(ours: Numbers, theirs: Numbers) -> Difference | None:
    """The key of the first number, in the order in which they come about, that is not equal."""
    different = [k for k in theirs if k not in ours or not _equal(ours[k], theirs[k])]
    different += [k for k in ours if k not in theirs]
    if not different:
        return None
    first = different[0]
    if first[0].startswith("gradient"):  # backward reaches the last parameters first
        return [k for k in different if k[0] == first[0]][-1]
    return first


def refuse(difference: Difference, ours: Side, theirs: Side) -> NoReturn:
    """Raise a ValidationError that says what differs, where, and by how much."""
    what, whose, _ = difference
    where = theirs.copy.described()
    if what == "output":
        found, expected = ours.outputs(), theirs.outputs()
        for (phase, path, call), values in expected.items():
            own = found.get((phase, path, call))
            if own is None or phase != whose:
                continue
            for one, other in zip(own, values, strict=False):
                if not _equal(one, other):
                    name = f"the output of `{path}`" if path else "the model's output"
                    _refuse(f"{name} in {phase}", one, other, where, path)
    ours_now, theirs_now = ours.run(), theirs.run()
    name = f"the model's output in {whose}" if what == "output" else f"the {what} of `{whose}`"
    for has, had, numbers in (("page's", "spec's", ours_now), ("spec's", "page's", theirs_now)):
        if difference not in numbers:
            note = f"compared {where}"
            differ("SP504", f"the {has} model has not {name}, and the {had} has", note=note)
    _refuse(name, ours_now[difference], theirs_now[difference], where, "")


def _refuse(name: str, ours: Tensor, theirs: Tensor, where: str, path: str) -> NoReturn:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        mine, other = (f"{t.dtype} {list(t.shape)}".replace("torch.", "") for t in (ours, theirs))
        by = f"it is {mine} on the page and {other} in the spec's model"
    else:
        a, b = ours.detach().double(), theirs.detach().double()
        position = int((a - b).abs().nan_to_num(float("inf")).argmax())
        mine, other = (f"{float(t.reshape(-1)[position]):.9g}" for t in (a, b))
        largest = float((a - b).abs().max())
        by = (
            f"it differs by up to {largest:.2g}, being {mine} on the page and {other} in the "
            "spec's model there"
        )
    differ("SP504", f"{name} is another: {by}", path=path, note=f"compared {where}")


def _equal(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if torch.equal(ours, theirs):
        return True
    same_nan = ours.isnan() & theirs.isnan() if ours.is_floating_point() else torch.tensor(False)
    return bool(((ours == theirs) | same_nan).all())
