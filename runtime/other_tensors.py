"""The tensors of a model that are no parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map

from .creation_log import ConstructorError


class OtherTensors:
    """Buffers, and tensors in plain attributes or in containers there: found, and put anew."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.named: dict[str, Tensor] = {}  # each tensor once, by its first name
        self._buffers: list[tuple[nn.Module, str, Tensor]] = []
        seen: set[int] = set()
        for prefix, module in model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._buffers.append((module, name, buffer))
                    self._add(f"{prefix}.{name}", buffer, seen)
            for name, value in _attributes(module):
                for number, tensor in enumerate(tree_iter(value)):
                    if isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter):
                        if tensor.requires_grad:
                            raise ConstructorError(
                                f"{type(module).__name__}.{name} is computed from a parameter in "
                                "the constructor, so it would not follow it; compute it in forward"
                            )
                        self._add(f"{prefix}.{name}#{number}", tensor, seen)

    def _add(self, name: str, tensor: Tensor, seen: set[int]) -> None:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            self.named[name] = tensor

    def replace(self, new: Mapping[int, Tensor]) -> None:
        """Puts ``new[id(tensor)]`` where each tensor (or parameter, in an attribute) stood."""

        def swapped(x: Any) -> Any:
            return new.get(id(x), x) if isinstance(x, Tensor) else x

        for module, name, buffer in self._buffers:
            module._buffers[name] = new[id(buffer)]
        for module in self.model.modules():
            for name, value in _attributes(module):
                if any(isinstance(x, Tensor) for x in tree_iter(value)):
                    module.__dict__[name] = tree_map(swapped, value)


def _attributes(module: nn.Module) -> list[tuple[str, Any]]:
    """The plain attributes that may hold tensors: tensors, and containers of them."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if name not in ("_parameters", "_buffers", "_modules", "_parameter_table")
        and isinstance(value, Tensor | list | tuple | dict)
    ]
