"""Corners: what the first wave left: several instances, several configs, bases in bases, odd text."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from specc.runtime import Mesh
from specc.templates import ModuleSpec, build_module

from .corner_names import Block as OtherBlock
from .corner_names import count, shift
from .parts import Options, Scaled, Two

if TYPE_CHECKING:
    from collections.abc import Sequence

try:
    from torch import surely_not_there as guarded
except ImportError:
    guarded = None


def owner(cls: type[nn.Module], **children: Any) -> ModuleSpec:
    return ModuleSpec(cls, params={"config": Options()}, submodules=children)


# ------------------------------------------------------------------ the machine


class AsksMesh(nn.Module):
    """What the constructor learns of the mesh is no fact: the page runs at any degree."""

    def __init__(self, config: Options, mesh: Mesh) -> None:
        super().__init__()
        self.alone = mesh.tp.size == 1
        self.first = mesh.tp.rank == 0
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.alone:
            y = y * 2
        return y if self.first else y * 100


class DefaultAsks(nn.Module):
    """A default that asks the machine."""

    def __init__(self, config: Options, fused: bool = torch.cuda.is_available()) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 100 if self.fused else self.linear(x)


class GuardedImport(nn.Module):
    """A name that is there on some machines."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y if guarded is None else guarded(y)  # refused: GuardedImport


class ImportsInside(nn.Module):
    """A library and a module of the user's, imported where they are used."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        import math

        from .corner_names import shift  # refused: ImportsInside

        return shift(self.linear(x)) * math.sqrt(4)


class ImportsLibrary(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        import math
        from math import sqrt as root

        return self.linear(x) * math.sqrt(4) * root(9)


# ------------------------------------------------------------------ several instances


class Wraps(nn.Module):
    """Is handed a child by the spec."""

    def __init__(self, config: Options, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class HandedDiffer(nn.Module):
    """One call builds two parents, whose specs hand them children with other numbers."""

    def __init__(self, config: Options, layer_specs: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([build_module(s, config) for s in layer_specs])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def spec_HandedDiffer() -> ModuleSpec:
    specs = [
        ModuleSpec(Wraps, submodules={"norm": ModuleSpec(Scaled, params={"factor": f})})  # refused: HandedDiffer
        for f in (0.5, 2.0)
    ]
    return ModuleSpec(HandedDiffer, params={"config": Options(), "layer_specs": specs})


class GivenDiffer(HandedDiffer):
    """The same, where one spec gives a number and the other leaves the default."""


def spec_GivenDiffer() -> ModuleSpec:
    specs = [ModuleSpec(Scaled), ModuleSpec(Scaled, params={"factor": 2.0})]  # refused: GivenDiffer
    return ModuleSpec(GivenDiffer, params={"config": Options(), "layer_specs": specs})


class SameClassTwice(nn.Module):
    """One class built at two places, with other numbers and other options."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.a = Scaled(config, 2.0)
        self.b = Scaled(config, factor=3.0)
        self.c = Scaled(config, 2.0, True)
        self.d = Scaled(config, gated=config.off)

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.c(self.b(self.a(x)), x))


class Block(nn.Module):
    """Two classes of one name, from two files."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.other = OtherBlock(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.linear(x))


class Recursive(nn.Module):
    """Builds its own class, as deep as a number says."""

    def __init__(self, config: Options, depth: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.inner = None
        if depth > 0:  # refused: Recursive
            self.inner = Recursive(config, depth - 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y if self.inner is None else self.inner(y)


class Stack(nn.ModuleList):
    """A container of the user's, with a forward of its own."""

    def __init__(self, config: Options) -> None:
        super().__init__([Two(config) for _ in range(config.layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x, x)
        return x


class UsesStack(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.stack = Stack(config)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.stack:
            x = layer(x, None)
        return self.stack[0](self.stack(x), x)


class Leaks(nn.Module):
    """A loop's variable after the loop, in a lambda and inside a pair."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Two(config) for _ in range(config.layers)])

    def forward(self, x: Tensor) -> Tensor:
        calls = []
        for layer in self.layers:
            x = layer(x, None)
            calls.append(lambda y, layer=layer: layer(y, y))
        x = layer(x, x)
        for pair in enumerate(self.layers):
            x = pair[1](x, x)
        for call in calls:
            x = call(x)
        xs = [layer(x) for layer in self.layers]
        for part in self.layers[1:]:
            x = part(x, xs[0])
        return x


class Rebinds(nn.Module):
    """The loop's variable is rebound under a condition."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Two(config) for _ in range(config.layers)])
        self.other = Two(config)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x, None)
        for i, layer in enumerate(self.layers):
            if x.shape[0] > i + 1:
                layer = self.other
            x = layer(x, x)
        return x


class Grandchild(nn.Module):
    """A child's child is called from outside, once it was handed on."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.layers = nn.ModuleList([HasTwo(config) for _ in range(config.layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        for layer in list(self.layers):
            x = layer.two(x, x)
        return x


class HasTwo(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.two = Two(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(x, None)


class ThroughProperty(nn.Module):
    """A child behind a property, and one behind `__getitem__`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self._two = Two(config)

    @property
    def two(self) -> nn.Module:
        return self._two

    def __getitem__(self, index: int) -> nn.Module:
        return self._two

    def forward(self, x: Tensor) -> Tensor:
        x = self._two(x, None)
        return self.two(x, x)


class SetsChild(nn.Module):
    """Attributes of children, set and deleted by the constructor that built them."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = Scaled(config, 2.0, gated=False)
        self.child.gated = True
        self.child.weight.requires_grad_(False)
        self.gone = Two(config)
        del self.gone
        self.twice = Two(config)
        self.twice = nn.Linear(config.width, config.width)
        self.frozen = nn.Linear(config.width, config.width).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.twice(self.child(x)))


class Normed(nn.Module):
    """`parametrizations` replaces the class of a child."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.register_parameter("scale", nn.Parameter(torch.ones(config.width)))
        self.add_module("more", nn.Linear(config.width, config.width))
        parametrizations.orthogonal(self.linear)  # refused: Normed

    def forward(self, x: Tensor) -> Tensor:
        return self.more(self.linear(x) * self.scale)


# ------------------------------------------------------------------ bases


class EarlyBase(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        if torch.cuda.device_count() > 1000:
            return  # refused: EarlyDerived
        self.scale = 2.0


class EarlyDerived(EarlyBase):
    """The base's constructor may end early; this one goes on."""

    def __init__(self, config: Options) -> None:
        super().__init__(config)
        self.more = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.more(self.linear(x)) * self.scale


class RebindingBase(nn.Module):
    def __init__(self, config: Options, width: int | None = None, unused: Any = None) -> None:
        super().__init__()
        if width is None:
            width = config.width
        self.linear = nn.Linear(config.width, width)


class RebindingDerived(RebindingBase):
    """The base changes a parameter that this class reads after it."""

    def __init__(self, config: Options, width: int | None = None) -> None:
        super().__init__(config, width)  # refused: RebindingDerived
        self.scale = 2 if width is None else 3

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale


class CallsInArgument(RebindingBase):
    """An argument that the base does not use draws from the generator."""

    def __init__(self, config: Options) -> None:
        super().__init__(config, unused=torch.rand(3))
        self.noise = nn.Parameter(torch.rand(config.width))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.noise


class LocalBase(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        size = config.width
        self.linear = nn.Linear(size, size)


class LocalMiddle(LocalBase):
    def __init__(self, config: Options) -> None:
        super().__init__(config)  # refused: LocalDerived
        self.scale = 2.0


class LocalDerived(LocalMiddle):
    """A local of this class has the name of one two bases up."""

    def __init__(self, config: Options) -> None:
        size = config.width + 1
        super().__init__(config)
        self.more = nn.Linear(config.width, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.more(self.linear(x)) * self.scale


class SuperValue(LocalBase):
    """`super()` as a value."""

    def forward(self, x: Tensor) -> Tensor:
        base = super()  # refused: SuperValue
        assert base.training is self.training
        return self.linear(x)


class SuperProperty(ThroughProperty):
    """A property of the base, asked of `super()`."""

    @property
    def two(self) -> nn.Module:
        return super().two  # refused: SuperProperty


class InitAgain(LocalBase):
    """Runs its own constructor again when it is called."""

    def __init__(self, config: Options) -> None:
        super().__init__(config)
        self.config = config
        self.fresh = True

    def reset(self) -> None:
        super().__init__(self.config)  # refused: InitAgain

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.fresh else x


class PositionalOnly(nn.Module):
    def __init__(self, config: Options, /) -> None:  # refused: HoldsPositional
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def spec_HoldsPositional() -> ModuleSpec:
    return owner(HoldsPositional)


class HoldsPositional(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = PositionalOnly(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


# ------------------------------------------------------------------ names


class MethodLikeFunction(nn.Module):
    """A method and a class attribute that are called like functions of the module."""

    count = 3

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def shift(self, x: Tensor) -> Tensor:
        return shift(x) * self.count

    def forward(self, x: Tensor) -> Tensor:
        return self.shift(self.linear(x)) * count(x)


def sum(values: Any) -> Any:
    total = 1.0
    for value in values:
        total = total + value
    return total


class HidesBuiltin(nn.Module):
    """A function of the module that is called like a builtin."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * sum([1, 2])


def ping(x: Tensor, depth: int) -> Tensor:
    return x if depth == 0 else pong(x + 1, depth - 1)


def pong(x: Tensor, depth: int, kept: Sequence[int] | None = None) -> Tensor:
    return ping(x * 2, depth)


class CallsInCircles(nn.Module):
    """Two helpers that call each other, one annotated with a name for type checkers."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return ping(self.linear(x), 3)


class ClassLevel(nn.Module):
    """A statement of the class's body reads a method above it."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def double(self, x: Tensor) -> Tensor:
        return x * 2

    again = double  # refused: ClassLevel

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.linear(x))


# ------------------------------------------------------------------ text


class OddText(nn.Module):
    """One-line suites, semicolons, line joins and words in another script."""

    def __init__(self, config: Options) -> None: # no space before this
        super().__init__(); self.config = config
        if config.flag: self.größe = 2
        else: self.größe = 3
        self.linear = nn.Linear(config.width, \
            config.width); self.scale = 1.5

    def forward(self, x: Tensor) -> Tensor:
        if self.config.off: return x
        for i in range(2): x = x + i; x = x * self.größe
        é = "日本" if self.config.flag else "x"; assert é == "日本"
        return (
            self.linear(x)  # words that stay
            * self.scale
        )


class BuiltInTry(nn.Module):
    """Children built under try, with and a conditional expression."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        try:
            self.a = build_module(submodules["a"], config)
        except KeyError:
            self.a = None
        with torch.no_grad():
            self.b = build_module(submodules["a"], config)
        self.c = build_module(submodules["b"], config) if config.flag else None
        self.d = build_module(submodules["b"], config) if config.off else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(self.a(x))
        if self.c is not None:
            x = self.c(x, x)
        return self.d(x)


def spec_BuiltInTry() -> ModuleSpec:
    return owner(BuiltInTry, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class BuiltInMatch(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        match config.kind:
            case "gelu":
                self.child = build_module(submodules["a"], config)  # refused: BuiltInMatch

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_BuiltInMatch() -> ModuleSpec:
    return owner(BuiltInMatch, a=ModuleSpec(Two))


class NumberBuilds(nn.Module):
    """A number that is no field decides which child there is."""

    def __init__(self, config: Options, number: int = 3, submodules: Any = None) -> None:
        super().__init__()
        if number % 2 == 1:  # refused: NumberBuilds
            self.child = build_module(submodules["a"], config)
        else:
            self.child = build_module(submodules["b"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_NumberBuilds() -> ModuleSpec:
    return owner(NumberBuilds, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


# ------------------------------------------------------------------ configs


class Flavour(enum.StrEnum):
    SWEET = "sweet"


@dataclass(frozen=True)
class Nested:
    depth: int = 3
    deep: bool = True


@dataclass(frozen=True)
class OddOptions:
    """Values that are hard to write."""

    width: int = 8
    text: str = "it's \"so\"\n\\ 日本"
    far: float = float("inf")
    numbers: tuple[float, ...] = (float("-inf"), 1e-7, -0.0, 3.0)
    mixed: tuple[object, ...] = ((1, None), (), True, "x'")
    negative: int = -3
    zero: float = 0.0
    flag: bool = True
    flavour: Flavour = Flavour.SWEET
    nested: Nested = Nested()


class OddValues(nn.Module):
    """Infinities, quotes, tuples in tuples and negative numbers in the Config and in parameters."""

    def __init__(self, config: OddOptions, text: str, pair: tuple[float, ...]) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)
        self.size = len(text)
        self.top = pair[0]

    def forward(self, x: Tensor) -> Tensor:
        c = self.config
        y = self.linear(x).clamp(max=c.far, min=self.config.numbers[0]) * len(c.text)
        y = y - self.config.negative**2 + len(self.config.mixed[0]) * self.config.numbers[1]
        return y.clamp(max=self.top) * self.size


def spec_OddValues() -> ModuleSpec:
    params = {"config": OddOptions(), "text": "a\"'\\\n", "pair": (float("inf"), 2.0)}
    return ModuleSpec(OddValues, params=params)


class StringEnum(nn.Module):
    """A member of an enum that is also a string."""

    def __init__(self, config: OddOptions) -> None:
        super().__init__()
        self.flavour = config.flavour  # refused: StringEnum
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.flavour is Flavour.SWEET and self.flavour == "sweet":
            y = y * 2
        return y * len(self.flavour.name)


def spec_StringEnum() -> ModuleSpec:
    return ModuleSpec(StringEnum, params={"config": OddOptions()})


class NestedConfig(nn.Module):
    """A config inside the config."""

    def __init__(self, config: OddOptions) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.config.nested.deep:
            y = y * 2
        return y * self.config.nested.depth  # refused: NestedConfig


def spec_NestedConfig() -> ModuleSpec:
    return ModuleSpec(NestedConfig, params={"config": OddOptions()})


class Assumes(nn.Module):
    """Tests of numbers under other names, in two configs that answer differently."""

    def __init__(self, config: OddOptions) -> None:
        super().__init__()
        use = config.flag
        c = config
        self.config = c
        self.linear = nn.Linear(c.width, c.width)
        if use and c.zero > 0.0:
            self.extra = nn.Linear(c.width, c.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) + self.config.zero
        if self.config.zero > 0.0:
            y = self.extra(y)
        return y


class TwoAssume(nn.Module):
    def __init__(self, config: OddOptions, submodules: Any = None) -> None:
        super().__init__()
        self.config = config
        self.a = build_module(submodules["a"])
        self.b = build_module(submodules["b"])

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def spec_TwoAssume() -> ModuleSpec:
    other = {"config": OddOptions(zero=1.0)}
    children = {"a": ModuleSpec(Assumes), "b": ModuleSpec(Assumes, params=other)}
    return ModuleSpec(TwoAssume, params={"config": OddOptions()}, submodules=children)


class PicksFunction(nn.Module):
    """`getattr` of a library by an option."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.act = getattr(F, config.kind)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x)) + getattr(torch, "relu")(x)
