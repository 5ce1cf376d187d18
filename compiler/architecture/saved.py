"""What each layer keeps of a forward for its backward, measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from specc.runtime import set_dropout_step
from specc.runtime.data_parallel import layers

from .once import Once
from .saved_kernels import as_on_gpu


@dataclass(frozen=True)
class Saved:
    """Bytes of one forward. `layers`: of each layer, its input included; `shared`: what they all
    read and is kept once (rotary tables). `dtype`: of what the first layer is called with."""

    layers: tuple[int, ...]
    shared: int
    dtype: torch.dtype | None

    @property
    def total(self) -> int:
        return sum(self.layers) + self.shared


def saved_activations(
    model: nn.Module,
    forward: Callable[[nn.Module], object],
    alike: Mapping[str, str] = MappingProxyType({}),
) -> Saved:
    """What autograd keeps of `forward(model)`, on the meta device, as eager layers do on a GPU.

    Every tensor that autograd packs counts once, by its storage; parameters and buffers do not,
    nor does what is kept outside the layers (the embedding's, the loss's logits). Nothing is
    recomputed in the backward. A layer is an element of an outermost ``nn.ModuleList``: of what it
    is called with, its first tensor counts as its own, the others as shared.

    `alike` has layers by their paths, each with the first of its kind (`Run.stands_for`): but for
    the model's first layer, one of a kind runs, and stands for all.
    `model` has to be in the dtype that is asked for, bf16 or fp16, parameters too, as under FSDP.
    """
    counter = _Counter(model, alike)
    model.train()
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    with as_on_gpu(), torch.autograd.graph.saved_tensors_hooks(counter.pack, lambda kept: kept):
        forward(model)
    return Saved(tuple(counter.of_layers()), counter.shared, counter.dtype)


class _Counter:
    """Counts in one forward of a model, which is of no other use afterwards."""

    def __init__(self, model: nn.Module, alike: Mapping[str, str]) -> None:
        units = layers(model)
        of_module = {id(unit): number for number, unit in enumerate(units)}
        self._numbers = {
            path: of_module[id(module)]
            for path, module in model.named_modules()
            if id(module) in of_module
        }
        # The first has none before it that may have kept its input: it stands for none.
        firsts = {path: alike.get(path, path) for path, number in self._numbers.items() if number}
        order = {path: number for number, path in enumerate(firsts.values())}
        like = {path: order[first] for path, first in firsts.items()}
        self._once = Once(like, lambda standing_in: standing_in())
        self.layers = [0] * len(units)
        self.shared = 0
        self.dtype: torch.dtype | None = None
        self._now: int | None = None
        # Storages are held, so that no key is used twice.
        held = [t.untyped_storage() for t in (*model.parameters(), *model.buffers())]
        self._seen = {storage._cdata: storage for storage in held}
        self._shared: set[int] = set()
        for path, number in self._numbers.items():
            self._watch(path, units[number], number)

    def _watch(self, path: str, unit: nn.Module, number: int) -> None:
        forward = unit.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            self._now = number
            given = [t for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)]
            if self.dtype is None and given:
                self.dtype = given[0].dtype
            own = {t.untyped_storage()._cdata for t in given[:1]}
            self._shared.update({t.untyped_storage()._cdata for t in given[1:]} - own)
            try:
                return self._once.run(path, unit, forward, args, kwargs)
            finally:
                self._now = None

        unit.forward = run

    def of_layers(self) -> list[int]:
        """Of every layer; one that did not run has what the one in its place has."""
        found = list(self.layers)
        for path, first in self._once.stands_for.items():
            found[self._numbers[path]] = self.layers[self._numbers[first]]
        return found

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen and self._now is not None:
            self._seen[storage._cdata] = storage
            if storage._cdata in self._shared:
                self.shared += storage.nbytes()
            else:
                self.layers[self._now] += storage.nbytes()
        return tensor
