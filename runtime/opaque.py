"""A kernel of another package inside a compiled layer: one operation that its graph calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional, cast

import torch
from torch import Tensor

Kernel = Callable[..., Tensor]

_AUTOGRAD = [
    getattr(torch._C.DispatchKey, name)
    for name in ("ADInplaceOrView", "AutogradFunctionality", "AutogradOther")
]

KERNELS: dict[str, Kernel] = {}
"""What ``opaque`` may call, by name: a graph holds no function."""


def opaque(
    name: str,
    like: Tensor,
    inputs: Sequence[Tensor | None],
    rest: Tensor | None = None,
    numbers: Sequence[int] = (),
) -> Tensor:
    """``KERNELS[name](*inputs, rest, *numbers)``, a tensor of the shape and dtype of ``like``.

    Of ``inputs`` it has gradients. In eager mode it is called as it is. A compiled layer cannot
    look into it: there its inputs are saved, and the backward runs it again.
    """
    if not torch.compiler.is_compiling():
        return KERNELS[name](*inputs, rest, *numbers)
    # Another tensor than those inputs: a graph takes none twice.
    like = like.detach()
    given = (name, like, rest, list(numbers), *inputs)
    y: Tensor = _Opaque.apply(*given)  # type: ignore[no-untyped-call]
    return y


# The annotations are torch's: it makes the operation's schema of them.
@torch.library.custom_op("specc::kernel", mutates_args=())
def _forward(
    name: str,
    like: Tensor,
    rest: Optional[Tensor],  # noqa: UP045
    numbers: Sequence[int],
    inputs: Sequence[Optional[Tensor]],  # noqa: UP045
) -> Tensor:
    return KERNELS[name](*inputs, rest, *numbers).clone(memory_format=torch.contiguous_format)


@_forward.register_fake
def _(name: str, like: Tensor, rest: Any, numbers: Any, inputs: Any) -> Tensor:
    return like.new_empty(like.shape)


@torch.library.custom_op("specc::kernel_backward", mutates_args=())
def _backward(
    name: str,
    grad: Tensor,
    rest: Optional[Tensor],  # noqa: UP045
    numbers: Sequence[int],
    inputs: Sequence[Optional[Tensor]],  # noqa: UP045
) -> list[Tensor]:
    with _autograd_again():
        own = [None if x is None else x.detach().requires_grad_() for x in inputs]
        y = KERNELS[name](*own, rest, *numbers)
        grads = torch.autograd.grad(y, [x for x in own if x is not None], grad)
    return [g.clone(memory_format=torch.contiguous_format) for g in grads]


@contextmanager
def _autograd_again() -> Iterator[None]:
    """Inside of an operation of ours autograd does not look: torch has left it before."""
    left = [key for key in _AUTOGRAD if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    for key in left:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for key in left:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


@_backward.register_fake
def _(name: str, grad: Tensor, rest: Any, numbers: Any, inputs: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in inputs if x is not None]


class _Opaque(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        like: Tensor,
        rest: Tensor | None,
        numbers: list[int],
        *inputs: Tensor | None,
    ) -> Tensor:
        ctx.name, ctx.numbers = name, numbers
        ctx.save_for_backward(rest, *inputs)
        return cast(Tensor, _forward(name, like, rest, numbers, list(inputs)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rest, *inputs = ctx.saved_tensors
        found = list(_backward(ctx.name, grads[0], rest, ctx.numbers, inputs))
        own = [None if x is None else found.pop(0) for x in inputs]
        return None, None, None, None, *own
