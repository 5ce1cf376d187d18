"""What FSDP2 leaves undone with the gradients of its groups, one for each ``fully_shard``.

FSDP reduces what gradients a rank has in one flat collective for each group. Where one rank's loss
reaches a parameter and another's does not, these collectives would differ in length: the run hangs,
or adds up one parameter with another. So each rank gives zeros for what its loss did not reach, and
notes what it did: a parameter that no rank reached has to stay without a gradient, else the
optimizer would decay it.

And the gradients that one backward brings to a gathered bfloat16 weight add up in bfloat16. Where a
weight has two names, and so two uses at least, they add up in float32 here, as they do where layers
cast a float32 weight themselves.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils._pytree import tree_leaves

from .sharded import as_sharded

_GROUPS = "_sharded_groups"


@dataclass(eq=False)
class _Group:
    module: nn.Module
    # Qualified name, and where it stands: FSDP exchanges the Parameter itself, cut for whole.
    places: list[tuple[str, nn.Module, str]]
    tied: bool
    done: bool = False  # in this backward

    def gathered(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trainable parameters, where they are whole now."""
        for name, owner, local_name in self.places:
            parameter = owner.get_parameter(local_name)
            if parameter.requires_grad and as_sharded(parameter) is None:
                yield name, parameter


class ShardedGroups:
    """The groups of a model whose ``modules`` (its root last) are each given to ``fully_shard``.

    Made before that, as FSDP replaces parameters; ``watch`` comes after. ``alone``: there is no
    other rank to add gradients to.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Sequence[nn.Module],
        ignored: set[nn.Parameter],
        *,
        alone: bool,
    ) -> None:
        self.reduces = True  # in the backward to come
        self._alone = alone
        self._reached: set[str] = set()
        self._filled: set[str] = set()
        self._queued = False
        self._groups: list[_Group] = []
        paths = {module: f"{path}." if path else "" for path, module in model.named_modules()}
        taken = set(ignored)
        for module in modules:
            places, tied = [], False
            here: set[nn.Parameter] = set()
            for owner in module.modules():
                for name, parameter in owner.named_parameters("", False, False):
                    tied |= parameter in here
                    if parameter not in taken and parameter not in here:
                        here.add(parameter)
                        places.append((paths[owner] + name, owner, name))
            taken |= here
            self._groups.append(_Group(module, places, tied))
        model.__dict__[_GROUPS] = self

    def watch(self) -> None:
        """Puts hooks around the modules' forwards."""
        # As FSDP's own hooks, they are no part of a compiled layer. Asked for here, since it
        # imports all of torch.compile.
        outside: Any = torch._dynamo.disable
        after_forward = outside(self._after_forward)
        for group in self._groups:
            before_forward = outside(functools.partial(self._before_forward, group))
            # Behind FSDP's hook, which gathers; and in front of it, as what its hook asks for in
            # the backward has to run after what ours does.
            group.module.register_forward_pre_hook(before_forward, with_kwargs=True)
            group.module.register_forward_hook(after_forward, prepend=True)

    def take_zeros(self) -> set[str]:
        """The names of what got zeros and no gradient on this rank, since the last call."""
        zeros = self._filled - self._reached
        self._filled, self._reached = set(), set()
        return zeros

    def _before_forward(self, group: _Group, module: nn.Module, args: Any, kwargs: Any) -> None:
        if group.tied:
            for _, parameter in group.gathered():
                parameter.grad_dtype = torch.float32
        for tensor in _differentiable((args, kwargs)):
            # They come from one function of FSDP, whose backward reduces the group's gradients.
            _hook(tensor, functools.partial(self._complete, group))
            break

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        for tensor in _differentiable(output):
            _hook(tensor, self._queue)

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            Variable._execution_engine.queue_callback(self.finish)

    def finish(self) -> None:
        """At the end of a backward, before FSDP reduces the groups whose inputs had no gradient."""
        for group in self._groups:
            if not group.done:
                self._complete(group)
            group.done = False
        self._queued = False

    def _complete(self, group: _Group) -> None:
        group.done = True
        for name, parameter in group.gathered():
            if parameter.grad is not None:
                self._reached.add(name)
            elif self.reduces and not self._alone:
                self._filled.add(name)
                parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)


def sharded_groups(model: nn.Module) -> ShardedGroups | None:
    """The groups that ``shard`` made of this model."""
    found: ShardedGroups | None = model.__dict__.get(_GROUPS)
    return found


def _hook(tensor: Tensor, run: Callable[[], None]) -> None:
    """Runs when the tensor's gradient is known, and leaves it."""

    def hook(gradient: Tensor) -> None:
        run()

    tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def _differentiable(values: Any) -> Iterator[Tensor]:
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor):
            if leaf.requires_grad:
                yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _differentiable([getattr(leaf, f.name) for f in dataclasses.fields(leaf)])
