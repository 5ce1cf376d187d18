"""What a constructor sees of the tensors that ``CreationLog`` hands it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class Disguise(TorchFunctionMode):
    """Lets a constructor see ordinary CPU tensors.

    ``nn.init.trunc_normal_`` and others do nothing, silently, to a tensor that says it is meta.
    Methods that read memory without an operation get the real value (``value``). And
    ``trunc_normal_``, which draws until its draws fit, so reads what it drew, counts as one
    operation (``one_draw``).
    """

    _LOOKS: ClassVar = {
        Tensor.is_meta.__get__: False,  # type: ignore[attr-defined]
        Tensor.is_cpu.__get__: True,  # type: ignore[attr-defined]
        Tensor.device.__get__: torch.device("cpu"),
    }
    _READERS = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})

    def __init__(self, value: Callable[[Tensor], Tensor], one_draw: Callable[..., Tensor]) -> None:
        super().__init__()
        self._value = value
        self._one_draw = one_draw

    def __enter__(self) -> Disguise:
        self._truncated = nn.init._no_grad_trunc_normal_
        nn.init._no_grad_trunc_normal_ = partial(self._one_draw, self._truncated)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        nn.init._no_grad_trunc_normal_ = self._truncated

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self._LOOKS:
            return self._LOOKS[func]
        if func not in self._READERS:
            return func(*args, **(kwargs or {}))
        real = self._value(args[0])
        with torch._C._DisableTorchDispatch():
            return func(real, *args[1:], **(kwargs or {}))
