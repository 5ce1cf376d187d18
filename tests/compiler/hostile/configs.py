"""The config: read through helpers, by name, by pattern; changed; replaced; handed on."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from specc.templates import ModuleSpec, build_module

from .parts import Options


class ByName(nn.Module):
    """`getattr` of the config, with a default where the field is not."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(getattr(config, "width", 3), getattr(config, "width"))
        self.gate = getattr(config, "no_such_field", None)
        self.by = getattr(config, "scale", 1.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.by
        if self.gate is not None:
            y = y * 100
        if getattr(self.config, "flag", False) and not hasattr(self.config, "absent"):
            y = y + getattr(self.config, "absent", 2)
        return y


class ByComputedName(nn.Module):
    """A field read by a name that is put together."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        for name in ("sca" + "le", "layers"):
            x = x * getattr(self.config, name)  # refused: ByComputedName
        return self.linear(x)


class Changes(nn.Module):
    """A frozen config cannot be changed; the exception is the author's to see."""

    def __init__(self, config: MutableOptions) -> None:
        super().__init__()
        self.config = config
        config.flag = False
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.config.flag else self.linear(x) * 2


@dataclass
class MutableOptions:
    """A config that is not frozen."""

    width: int = 8
    flag: bool = True


def spec_Changes() -> ModuleSpec:
    return ModuleSpec(Changes, params={"config": MutableOptions()})  # refused: Changes


class Forces(nn.Module):
    """Past the frozen config by `object.__setattr__`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) if self.config.flag else self.linear(x) * 2
        object.__setattr__(self.config, "flag", False)  # refused: Forces
        return y


class Replaces(nn.Module):
    """A config made from the config."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = dataclasses.replace(config, flag=False, layers=3)  # refused: Replaces
        self.linear = nn.Linear(self.config.width, self.config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 100 if self.config.flag else self.linear(x) * self.config.layers


class Aliases(nn.Module):
    """The config under other names: a local, an attribute, a loop's and a tuple's."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        cfg = config
        self.c = cfg
        self.pair = (cfg, cfg.scale)
        self.linear = nn.Linear(cfg.width, cfg.width)

    def forward(self, x: Tensor) -> Tensor:
        c = self.c
        x = x * c.scale
        for other in [self.c]:
            x = x * other.layers
        config, by = self.pair
        if config.flag:
            x = x + by
        return self.linear(x) * self.scaled(self.c)

    def scaled(self, options: Options) -> float:
        return options.limit if options.kind == "gelu" else options.zero


def reads(config: Options, x: Tensor) -> Tensor:
    return x * config.half if config.wide else deeper(config, x) * config.inner


def deeper(options: Options, x: Tensor) -> Tensor:
    return x * options.limit


class ToHelper(nn.Module):
    """A helper is handed the whole config."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return reads(self.config, self.linear(x))


def all_fields(config: Options) -> int:
    return len(dataclasses.fields(config)) + len(dataclasses.asdict(config))  # refused: Enumerates


class Enumerates(nn.Module):
    """What is counted is the fields of the page's Config."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * all_fields(self.config)


@dataclass(frozen=True)
class RichOptions:
    """A config with a method, class variables, a default made by a factory and derived fields."""

    width: int = 8
    flag: bool = True
    step: ClassVar[int] = 3
    names: tuple[str, ...] = field(default_factory=lambda: ("a", "b"))
    derived: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "derived", self.width * 2)

    def scaled(self, by: int) -> int:
        return self.width * by * self.step

    @functools.cached_property
    def cached(self) -> int:
        return self.width + 1

    @property
    def on_gpu(self) -> bool:
        return self.flag and torch.cuda.is_available()


class CallsMethod(nn.Module):
    def __init__(self, config: RichOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.scaled(2)  # refused: CallsMethod


def spec_CallsMethod() -> ModuleSpec:
    return ModuleSpec(CallsMethod, params={"config": RichOptions()})


class ReadsClassVar(nn.Module):
    def __init__(self, config: RichOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.step  # refused: ReadsClassVar


def spec_ReadsClassVar() -> ModuleSpec:
    return ModuleSpec(ReadsClassVar, params={"config": RichOptions()})


class ReadsCached(nn.Module):
    def __init__(self, config: RichOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.cached  # refused: ReadsCached


def spec_ReadsCached() -> ModuleSpec:
    return ModuleSpec(ReadsCached, params={"config": RichOptions()})


class ReadsDerived(nn.Module):
    """A field that `__post_init__` computes, and one made by a factory."""

    def __init__(self, config: RichOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.derived + len(self.config.names)


def spec_ReadsDerived() -> ModuleSpec:
    return ModuleSpec(ReadsDerived, params={"config": RichOptions()})


class EnvironmentProperty(nn.Module):
    """A property of the config that asks the machine."""

    def __init__(self, config: RichOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 100 if self.config.on_gpu else self.linear(x)


def spec_EnvironmentProperty() -> ModuleSpec:
    return ModuleSpec(EnvironmentProperty, params={"config": RichOptions()})


@dataclass(frozen=True)
class InnerOptions:
    """The config of a child: other fields than the root's, one of them None."""

    inner: int = 8
    bias: float | None = None
    flag: bool = False

    @property
    def twice(self) -> int:
        return 2 * self.inner


class Inner(nn.Module):
    def __init__(self, config: InnerOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.inner, config.inner)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.config.twice
        for value in (self.config.bias, 1.0):
            if value is not None:
                y = y + value
        return y * 100 if self.config.flag else y


class TwoConfigs(nn.Module):
    """Two configs of different classes, with a field of the same name."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.config = config
        self.child = build_module(submodules["child"])
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(self.linear(x)) * self.config.scale
        return y * 2 if self.config.flag else y


def spec_TwoConfigs() -> ModuleSpec:
    return ModuleSpec(
        TwoConfigs,
        params={"config": Options()},
        submodules={"child": ModuleSpec(Inner, params={"config": InnerOptions()})},
    )


class TwoValues(nn.Module):
    """Two configs of one class that differ in an option and in numbers."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.config = config
        self.first = build_module(submodules["child"])
        self.second = build_module(submodules["other"])

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * self.config.scale


class Sized(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width, bias=config.flag)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.config.half * self.config.inner
        return y.relu() if self.config.flag else y


def spec_TwoValues() -> ModuleSpec:
    other = Options(flag=False, limit=None, width=8)
    return ModuleSpec(
        TwoValues,
        params={"config": Options()},
        submodules={"child": ModuleSpec(Sized), "other": ModuleSpec(Sized, params={"config": other})},
    )


class Compared(nn.Module):
    """The config as a value: printed and returned by a method."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def me(self) -> Options:
        return self.config

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.config, Options)
        return self.linear(x) * self.me().layers


class Prints(nn.Module):
    """The text of the whole config."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * len(str(self.config))  # refused: Prints


def is_options(config: Options | None) -> bool:
    return isinstance(config, Options)  # refused: AsksClass


class AsksClass(nn.Module):
    """A helper asks for the class of the config: the page's is another."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if is_options(self.config) else x


class ReadsAlias(nn.Module):
    """A property that comes to a field, read where that is seen and where it is not."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.config.inner
        for config in (self.config,):
            y = y + config.inner
        return y


@dataclass(frozen=True)
class OddProperties(Options):
    """Properties that do more than read fields."""

    def scaled(self, by: int) -> int:
        return self.width * by

    @property
    def half(self) -> int:
        return super().half * 2  # refused: SuperInProperty

    @property
    def twice(self) -> int:
        return self.scaled(2)  # refused: MethodInProperty

    @property
    def count(self) -> int:
        return len(dataclasses.fields(self))  # refused: SelfInProperty


class SuperInProperty(nn.Module):
    def __init__(self, config: OddProperties) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.half


def spec_SuperInProperty() -> ModuleSpec:
    return ModuleSpec(SuperInProperty, params={"config": OddProperties()})


class MethodInProperty(SuperInProperty):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.twice


def spec_MethodInProperty() -> ModuleSpec:
    return ModuleSpec(MethodInProperty, params={"config": OddProperties()})


class SelfInProperty(SuperInProperty):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.count


def spec_SelfInProperty() -> ModuleSpec:
    return ModuleSpec(SelfInProperty, params={"config": OddProperties()})


def asks_method(config: OddProperties) -> int:
    return config.scaled(3)  # refused: MethodInHelper


class MethodInHelper(SuperInProperty):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * asks_method(self.config)


def spec_MethodInHelper() -> ModuleSpec:
    return ModuleSpec(MethodInHelper, params={"config": OddProperties()})
