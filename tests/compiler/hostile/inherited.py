"""Bases that are written out with a class: renamed arguments, `super()`, names of two modules."""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import Tensor, nn

from specc.templates import ModuleSpec

from . import inherited_base
from .inherited_base import Base, Middle, Shifted
from .parts import Options

SCALE = 5.0
OFFSET = 0.5


class Renamed(Base):
    """Its arguments reach the base under other names, one of them computed."""

    def __init__(self, config: Options, size: int = 8) -> None:
        super().__init__(config, width=size, gated=not config.off)
        self.extra = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.extra(self.act(self.linear(x)))


class RenamedClash(Base):
    """A name of the base's, passed something else while this class has its own of that name."""

    def __init__(self, config: Options, gated: bool = True) -> None:
        width = 4
        super().__init__(config, width=width * 2, gated=not gated)  # refused: RenamedClash
        self.extra = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


class CallsSuper(Base):
    """`super().forward` and a `super()` in another method than its own."""

    factor = 5

    def act(self, x: Tensor) -> Tensor:
        return super().act(x) + 1

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * 2 + super().act(x)


class ThreeLevels(Middle):
    """User classes over three files' worth of bases, each calling the next."""

    def __init__(self, config: Options) -> None:
        super().__init__(config, config.width, closed=config.off)
        self.last = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(super().forward(x))


class OldSuper(Base):
    """`super(Class, self)` names the class."""

    def __init__(self, config: Options) -> None:
        super(OldSuper, self).__init__(config)  # noqa: UP008

    def forward(self, x: Tensor) -> Tensor:
        return super(OldSuper, self).forward(x) * 2  # noqa: UP008


class NamedBase(Base):
    """The base's constructor and its method are called through the class."""

    def __init__(self, config: Options) -> None:
        Base.__init__(self, config)  # refused: NamedBase

    def forward(self, x: Tensor) -> Tensor:
        return Base.forward(self, x) * 2


class StarBase(Base):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # refused: StarBase
        self.extra = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.extra(self.linear(x))


class SuperInBranch(Base):
    """The base's constructor runs under a condition, and after other statements."""

    def __init__(self, config: Options) -> None:
        size = config.width
        if config.flag:
            super().__init__(config, size, config.flag)
        else:
            super().__init__(config)
        self.gated = config.off

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


class NoInit(Base):
    """No constructor of its own; a class attribute that hides the base's."""

    factor = 7


class Collides(Shifted):
    """Both modules have a `SCALE`, and both methods read theirs."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * SCALE  # refused: Collides


class CollidingHelpers(nn.Module):
    """Two classes of one page, each with a `SCALE` of its module's."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.first = Shifted(config)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.first(x)) * SCALE  # refused: CollidingHelpers


def mixed_in(x: Tensor) -> Tensor:
    return x * 2


class Mixin:
    def act(self, x: Tensor) -> Tensor:
        return mixed_in(x)


class SeveralBases(Mixin, Base):  # refused: SeveralBases
    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


class Abstract(Base, metaclass=abc.ABCMeta):  # refused: Abstract
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Registering(nn.Module):
    """The base does something to every class made from it."""

    made: list[type] = []  # noqa: RUF012

    def __init_subclass__(cls, scale: float = 1.0, **kwargs: Any) -> None:  # refused: Registered
        super().__init_subclass__(**kwargs)
        cls.scale = scale
        Registering.made.append(cls)

    scale = 1.0


class Registered(Registering, scale=4.0):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale


class FromTorch(nn.LayerNorm):
    """The base is torch's: it reads attributes that this class stores."""

    def __init__(self, config: Options) -> None:
        super().__init__(config.width)
        self.eps = 0.5 if config.flag else 0.1
        if config.off:
            self.eps = self.eps * 2

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class UsesFromTorch(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.norm = FromTorch(config)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class Checked(nn.Module):
    """Asks which class a child has, of a class that the page flattens."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Renamed(config), NoInit(config)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, Base):  # refused: Checked
                x = x + 1
        return x


class MangledBase(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.__scale = 2.0

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.__scale


class MangledChild(MangledBase):
    """Two private attributes of the same name in one chain of bases."""

    def __init__(self, config: Options) -> None:
        super().__init__(config)
        self.__scale = 3.0

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(self.linear(x)) * self.__scale  # refused: MangledChild


class ModuleRead(nn.Module):
    """Reads a name through a module of the user's own."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return inherited_base.shift(self.linear(x))  # refused: ModuleRead


class ReturnsOwn(nn.Module):
    """An annotation that names the class itself."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def me(self) -> ReturnsOwn:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.me().linear(x)


def spec_NamedBase() -> ModuleSpec:
    return ModuleSpec(NamedBase, params={"config": Options()})


class Derived(torch.nn.Module):
    """The base is written as `torch.nn.Module`."""

    def __init__(self, config: Options) -> None:
        torch.nn.Module.__init__(self)
        self.linear = torch.nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
