"""Attributes: who stores them, when, and who reads them unseen."""

from __future__ import annotations

import copy
import operator
import types
from typing import Any

import torch
from torch import Tensor, nn

from specc.templates import ModuleSpec, build_module

from .parts import Options, Scaled


class Toggled(nn.Module):
    """A flag of the constructor that forward changes: the second call takes the other branch."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.first = True
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            self.first = False
            return self.linear(x)
        return self.linear(x) * 2


class ToggledInLoop(nn.Module):
    """The constructor itself changes the flag between two rounds of a loop."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.first = True
        self.layers = nn.ModuleList()
        for _ in range(3):
            if self.first:
                self.layers.append(nn.Linear(config.width, config.width, bias=True))
            else:
                self.layers.append(nn.Linear(config.width, config.width, bias=False))
            self.first = False

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x if self.first else x * 3


class SetByOther(nn.Module):
    """The owner changes the attribute of its child, in forward."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(self.linear(x))
        self.child.gated = not self.child.gated
        return y


def spec_SetByOther() -> ModuleSpec:
    return ModuleSpec(
        SetByOther, params={"config": Options()}, submodules={"child": ModuleSpec(Scaled)}
    )


class SetThroughAlias(nn.Module):
    """`me` is `self`: the store has another name."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        me = self
        y = self.linear(x)
        if self.gate:
            y = y.relu()
        me.gate = False
        return y


def close_gate(module: nn.Module) -> None:
    """A helper that changes the module it is given."""
    module.gate = False  # type: ignore[assignment]


class SetByHelper(nn.Module):
    """A function of the module changes the attribute."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.gate:
            y = y.relu()
        close_gate(self)
        return y


class SetByClosure(nn.Module):
    """A function made in the constructor changes the attribute when forward runs."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.seen = False
        self.linear = nn.Linear(config.width, config.width)

        def note(module: nn.Module, inputs: Any) -> None:
            self.seen = True

        self.linear.register_forward_pre_hook(note)

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.seen else x * 2
        return self.linear(y)


class SetAttr(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.gate:
            y = y.relu()
        setattr(self, "ga" + "te", False)  # refused: SetAttr
        return y


def close_by_name(module: nn.Module, name: str) -> None:
    setattr(module, name, False)  # refused: SetAttrByHelper


class SetAttrByHelper(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.gate:
            y = y.relu()
        close_by_name(self, "gate")
        return y


class DelAttr(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "gate"):
            del self.gate
            return self.linear(x).relu()
        return self.linear(x)


class VarsOfSelf(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.gate:
            y = y.relu()
        vars(self)["gate"] = False  # refused: VarsOfSelf
        return y


class Executed(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.gate = config.flag
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate:
            exec("self.gate = False")  # refused: Executed
            return self.linear(x).relu()
        return self.linear(x)


class ReadByName(nn.Module):
    """Nothing reads `alpha` but a string."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.alpha = config.scale
        self.beta = 2.0
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) * getattr(self, "alpha")
        return x * self.beta if hasattr(self, "beta") else x


class ReadByComputedName(nn.Module):
    """Nothing reads `scale_a` and `scale_b` by a name that stands in the text."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.scale_a = 2.0
        self.scale_b = 3.0
        self.linear = nn.Linear(config.width, config.width)
        self.total = self.scale_a + self.scale_b if config.off else 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) * self.total
        for letter in ("a", "b"):
            x = x * getattr(self, f"scale_{letter}")
        return x


class ReadByGetter(nn.Module):
    """`operator.attrgetter` reads the attribute, by a name that is put together."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.alpha = config.scale
        self.linear = nn.Linear(config.width, config.width)
        if config.off:
            self.beta = self.alpha

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * operator.attrgetter("al" + "pha")(self)


class ListAttribute(nn.Module):
    """A list grows with each call: its length is no fact."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(1)
        return self.linear(x) if len(self.seen) < 2 else self.linear(x) * 2


class PropertyWithState(nn.Module):
    """Reading the property counts; the value read goes unused once the branch is folded."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.count = 0
        self.linear = nn.Linear(config.width, config.width)

    @property
    def tick(self) -> int:
        self.count += 1
        return self.count

    def forward(self, x: Tensor) -> Tensor:
        y = self.tick
        x = self.linear(x)
        if self.config.off:
            x = x + y
        return x * self.count


class PropertySetter(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self._open = config.flag

    @property
    def gate(self) -> bool:
        return self._open

    @gate.setter
    def gate(self, value: bool) -> None:  # refused: PropertySetter
        self._open = value

    def forward(self, x: Tensor) -> Tensor:
        self.gate = not self.gate
        return self.linear(x) if self._open else self.linear(x) * 2


class ClassAttribute(nn.Module):
    """The flag belongs to the class, and an instance shadows it at its first call."""

    warm = False
    count = 0

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        type(self).count += 1
        y = self.linear(x) * self.count
        if self.warm:
            return y
        self.warm = True
        return y * 2


class Slots(nn.Module):
    """A child's parameters are reached by subscript, by name and through the container."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(config.width)) for _ in range(2)])
        self.table = nn.ParameterDict({"a": nn.Parameter(torch.ones(config.width))})

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x * scale
        return x * self.table["a"]


class Mangled(nn.Module):
    """The name of a private attribute has the name of its class in it."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.__linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.__linear(x)  # refused: Mangled


class Copied(nn.Module):
    """A copy of itself, made by the constructor of another module, keeps its attributes."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        first = Scaled(config, 2.0)
        self.first = first
        self.second = copy.deepcopy(first)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x), x)


class Buffers(nn.Module):
    """A buffer of the state, one that is not, and a plain tensor that is neither."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("table", torch.arange(float(config.width)), persistent=False)
        self.weight = nn.Parameter(torch.randn(config.width) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return x * self.weight + self.table * self.seen


class Tied(nn.Module):
    """Two names of one parameter."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.width, bias=False)
        self.down = nn.Linear(config.width, config.width, bias=False)
        self.down.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


class Drawn(nn.Module):
    """Initial values that the constructor draws and computes, and a draw that nothing keeps."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        unused = torch.rand(3)
        self.scale = nn.Parameter(torch.rand(config.width) * 2 + 1)
        self.linear = nn.Linear(config.width, config.width)
        nn.init.normal_(self.linear.weight, std=0.3)
        with torch.no_grad():
            self.linear.bias.copy_(torch.linspace(0, 1, config.width))

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand(3)  # nothing reads it, and the next draw depends on it
        return self.linear(x * self.scale) + torch.rand(x.shape[-1])


class Unused(nn.Module):
    """A child that no forward calls is still part of the state."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.hidden = nn.Linear(config.width, 3)
        unused = nn.Linear(config.width, 5)
        if config.off:
            self.more = nn.Linear(config.width, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class InstanceForward(nn.Module):
    """The instance's own `forward` hides that of the class, and takes other arguments."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x, x)


class ChoosesForward(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.forward = self._fast if config.flag else self._slow  # type: ignore[method-assign]

    def _fast(self, x: Tensor, other: Tensor) -> Tensor:
        return self.linear(x) + other

    def _slow(self, x: Tensor, other: Tensor) -> Tensor:
        return self.linear(x) - other

    def forward(self, x: Tensor, unread: Tensor) -> Tensor:
        return self.linear(x)


def spec_InstanceForward() -> ModuleSpec:
    return ModuleSpec(
        InstanceForward,
        params={"config": Options()},
        submodules={"child": ModuleSpec(ChoosesForward)},
    )


class Patched(nn.Module):
    """Its method was replaced after the class was made: the text is not what runs."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:  # refused: Patched
        return self.linear(x)


def _patched_forward(self: Patched, x: Tensor) -> Tensor:
    return self.linear(x) * 2


Patched.forward = _patched_forward  # type: ignore[method-assign]


class BoundLater(nn.Module):
    """A method of the instance, bound by `types.MethodType`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.act = types.MethodType(_squared, self)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


def _squared(module: nn.Module, x: Tensor) -> Tensor:
    return x.square()


class TrainingFlag(nn.Module):
    """`self.training`, under its own name and through an alias: never a fact."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.started_in_training = self.training

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.training and self.started_in_training:
            y = y + torch.rand_like(y)
        return y if self.training else y * 2
