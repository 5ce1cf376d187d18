"""What a module computes: its steps in training, and wherever else they are others."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from torch import nn

from .calls import ModuleCall, Phase
from .children import is_chain
from .flow import Flow, flow_of
from .kinds import is_library
from .lines import lines_of
from .run import Run
from .steps import element
from .tree import Weight

PHASES: tuple[tuple[Phase, str], ...] = (
    ("train", ""),
    ("labels", "with labels:"),
    ("eval", "in eval mode:"),
)


class Steps:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.modules = dict(run.model.named_modules())

    def flows(self, calls: Any, ran: str) -> list[tuple[str, Flow]]:
        """What a module does, in training and wherever else it does something else."""
        found: list[tuple[str, Flow]] = []
        for phase, words in PHASES:
            for number, call in enumerate(calls[phase]):
                flow = flow_of(call, partial(self.chain, ran, phase, number))
                if all(_computed(flow) != _computed(other) for _, other in found):
                    again = f"call {number + 1}:" if number else ""
                    found.append((" ".join(filter(None, (words, again))), flow))
        return found

    def chain(self, ran: str, phase: Phase, number: int, name: str) -> ModuleCall | None:
        """The call of a child that only calls its elements in turn."""
        path = f"{ran}.{name}" if ran else name
        module = self.modules.get(path)
        if module is None or not is_chain(module) or element(name) is not None:
            return None
        calls = self.run.calls[phase].get(path, ())
        return calls[min(number, len(calls) - 1)] if calls else None

    def lines(self, flows: list[tuple[str, Flow]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The steps without sizes, and with them."""
        both: list[tuple[str, ...]] = []
        for sizes in (False, True):
            lines: list[str] = []
            for words, flow in flows:
                of_flow = lines_of(flow, places=self.run.places, sizes=sizes)
                if not flow.steps and not words:
                    continue
                if words and not sizes and of_flow == lines_of(flows[0][1], places=self.run.places):
                    continue
                lines += [words, *(f"    {line}" for line in of_flow)] if words else of_flow
            both.append(tuple(lines))
        return both[0], both[1]

    def exact(
        self, module: nn.Module, flows: Any, detail: tuple[str, ...], weights: tuple[Weight, ...]
    ) -> str:
        shapes = [
            (n, tuple("s" if d >= self.run.length else d for d in b.shape))
            for n, b in module.named_buffers(recurse=False)
        ]
        patterns = [(loop.name, loop.pattern) for _, flow in flows for loop in flow.loops.values()]
        of: tuple[Any, ...] = (detail, patterns, weights, shapes)
        if is_library(module):
            of = (type(module).__name__, _plain_attributes(module), *of)
        return hashlib.blake2b(repr(of).encode(), digest_size=8).hexdigest()


def _computed(flow: Flow) -> Any:
    return (flow.steps, flow.returned, flow.loops)


def _plain_attributes(module: nn.Module) -> list[tuple[str, Any]]:
    plain = (bool, int, float, str, tuple)
    found = ((n, v) for n, v in vars(module).items() if not n.startswith("_") and n != "training")
    return [(n, v) for n, v in found if v is None or isinstance(v, plain)]
