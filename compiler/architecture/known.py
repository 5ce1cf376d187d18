"""What is known of a module when its facts are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .calls import AttentionCall, ModuleCall, Step
from .tree import Part, Value, Weight

Facts = dict[str, Value]


@dataclass(frozen=True)
class Known:
    """What is known of a module when its facts are asked for. `rows_are_tokens`: of an embedding,
    it looks up token ids."""

    module: nn.Module
    call: ModuleCall | None
    weights: tuple[Weight, ...]
    children: tuple[Part, ...]
    attention: tuple[AttentionCall, ...] = ()
    rows_are_tokens: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.call.steps if self.call is not None else ()

    def shape(self, name: str) -> tuple[int, ...]:
        return next((w.shape for w in self.weights if w.name == name), ())
