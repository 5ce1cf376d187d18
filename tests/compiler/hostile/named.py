"""Names: of imports, of the page's own, and of functions that the page has to hold."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import silu as swish

from specc.runtime import Mesh as OurMesh
from specc.templates import ModuleSpec, RMSNorm, TransformerConfig, build_module

from .parts import Options


class LocalLikeImport(nn.Module):
    """Locals, parameters of lambdas and names of loops that hide an import elsewhere."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def helper(self, x: Tensor) -> Tensor:
        F = x * 2  # noqa: N806
        math = 3
        return F * math

    def forward(self, x: Tensor) -> Tensor:
        tripled = (lambda math: math * 3)(x)
        parts = sum(F for F in (1, 2))
        return F.gelu(self.linear(self.helper(x))) * math.sqrt(parts) + swish(tripled)


class MeshParameter(nn.Module):
    """Parameters and attributes with the names that the page uses itself."""

    def __init__(self, config: Options, mesh: int = 3, Config: int = 2) -> None:  # noqa: N803
        super().__init__()
        self.Mesh = 5
        self.mesh = 2
        self.materialize = 4
        self.linear = nn.Linear(config.width, config.width)
        self.size = Config

    def forward(self, x: Tensor) -> Tensor:
        Mesh = self.Mesh  # noqa: N806
        build_model = Mesh + self.mesh
        return self.linear(x) * build_model + self.size


def spec_MeshParameter() -> ModuleSpec:
    return ModuleSpec(MeshParameter, params={"config": Options(), "mesh": 4})


class OwnMesh(nn.Module):
    """A `mesh` that is the user's own, over a child that needs ours."""

    def __init__(self, config: TransformerConfig, mesh: tuple[int, int], submodules: Any) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)
        self.mesh = mesh
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.child(x)) * self.mesh[0]


def template_config(**fields: Any) -> TransformerConfig:
    sizes = {"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11}
    return TransformerConfig(**sizes, max_position_embeddings=16, **fields)


def spec_OwnMesh() -> ModuleSpec:
    from specc.templates import MLP

    return ModuleSpec(
        OwnMesh,
        params={"config": template_config(), "mesh": (2, 3)},
        submodules={"child": ModuleSpec(MLP)},
    )


class ConfigNotAConfig(nn.Module):
    """A parameter called `config` that is a number."""

    def __init__(self, config: int = 8) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config, config)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config


def spec_ConfigNotAConfig() -> ModuleSpec:
    return ModuleSpec(ConfigNotAConfig, params={"config": 8})


class Config:
    """A class of the user's that is called as the page's own."""

    scale = 3.0


class ReadsOwnConfig(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * Config.scale  # refused: ReadsOwnConfig


def materialize(x: Tensor) -> Tensor:
    return x + 1


class OwnMaterialize(nn.Module):
    """A helper with the name of a function that the page imports."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return materialize(self.linear(x))  # refused: OwnMaterialize


def build_model(x: Tensor) -> Tensor:
    return x + 1


class OwnBuildModel(nn.Module):
    """A helper with the name of the page's entry point."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return build_model(self.linear(x))  # refused: OwnBuildModel


class Mesh(nn.Module):
    """A module class with the name of the page's mesh."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class HoldsMesh(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = Mesh(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


class OurMeshRenamed(nn.Module):
    """The mesh's class, imported under another name, as an annotation."""

    def __init__(self, config: Options, mesh: OurMesh) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.alone = mesh.tp.size == 1

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.alone else self.linear(x) * 100


class LayerNorm(nn.Module):
    """A norm of the user's, called like one that the page imports."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


class TwoNorms(nn.Module):
    """One page with the user's `LayerNorm`, the runtime's and torch's."""

    def __init__(self, config: TransformerConfig, submodules: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.mine = build_module(submodules["mine"], config, hidden_size=width, eps=1e-3)
        self.ours = build_module(submodules["ours"], config, hidden_size=width, eps=1e-3)
        self.torchs = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.mine(x) + self.ours(x) * self.torchs(x))


def spec_TwoNorms() -> ModuleSpec:
    from specc import templates

    return ModuleSpec(
        TwoNorms,
        params={"config": template_config()},
        submodules={"mine": ModuleSpec(LayerNorm), "ours": ModuleSpec(templates.LayerNorm)},
    )


class ReadsTemplate(nn.Module):
    """Reads a template class other than by building it."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * len(RMSNorm.__name__)  # refused: ReadsTemplate


@dataclass
class Pair:
    left: Tensor
    right: Tensor
    scale: float = 2.0

    def total(self) -> Tensor:
        return (self.left + self.right) * self.scale


Point = namedtuple("Point", ["x", "y"])


class Named(NamedTuple):
    value: Tensor
    by: float = 0.5


class Helpers(nn.Module):
    """Data classes, tuples with names and functions that call others."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        pair = Pair(self.linear(x), x)
        point = Point(x=pair.total(), y=2)
        named = Named(point.x)
        return outer(named.value * named.by, point.y) + dataclasses.replace(pair, scale=1.0).left


def outer(x: Tensor, by: float) -> Tensor:
    return inner(x) * by * FACTOR


def inner(x: Tensor) -> Tensor:
    return x - OTHER


FACTOR = 2.0
OTHER = FACTOR * 2


def make_scaler(by: float) -> Any:
    def scaler(x: Tensor) -> Tensor:
        return x * by

    return scaler


triple = make_scaler(3.0)


class FromFactory(nn.Module):
    """A function with free variables."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return triple(self.linear(x))  # refused: FromFactory


@functools.lru_cache(maxsize=4)
def cached(width: int) -> float:
    return 1.0 / math.sqrt(width)


def doubled(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(x: Tensor) -> Tensor:
        return function(x) * 2

    return wrapped


@doubled
def plus(x: Tensor) -> Tensor:
    return x + 1


class DecoratedHelper(nn.Module):
    """A helper that a decorator of the library has replaced."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * cached(self.config.width)


class WrappedHelper(nn.Module):
    """A helper that a decorator of the user's has replaced by a closure."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return plus(self.linear(x))


LIMIT = 1
LIMIT += 4
STEPS = 2
STEPS = STEPS + 3
TABLE: dict[str, Any] = {}
TABLE["gelu"] = F.gelu
REGISTRY: dict[str, Any] = {}


def register(name: str) -> Any:
    def put(function: Any) -> Any:
        REGISTRY[name] = function
        return function

    return put


@register("gelu")
def my_gelu(x: Tensor) -> Tensor:
    return F.gelu(x) * 2


class AugmentedConstant(nn.Module):
    """A constant that two statements make."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * LIMIT  # refused: AugmentedConstant


class ReboundConstant(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * STEPS  # refused: ReboundConstant


class FilledTable(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return TABLE[self.config.kind](self.linear(x))  # refused: FilledTable


class FilledRegistry(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY[self.config.kind](self.linear(x))  # refused: FilledRegistry


def changed(x: Tensor) -> Tensor:
    return x + 1


_original = changed


def changed_later(x: Tensor) -> Tensor:
    return _original(x) * 3


changed = changed_later


class ReboundFunction(nn.Module):
    """A function that was replaced by another under its name."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return changed(self.linear(x))  # refused: ReboundFunction


def marked(x: Tensor) -> Tensor:
    marked.calls += 1  # type: ignore[attr-defined]
    return x * marked.calls  # type: ignore[attr-defined]


marked.calls = 0  # type: ignore[attr-defined]


class MarkedFunction(nn.Module):
    """A function that carries attributes."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return marked(self.linear(x))  # refused: MarkedFunction


def mix(x: Tensor, y: Tensor | None = None) -> Tensor:
    return x if y is None else x + y


class LocalLikeFunction(nn.Module):
    """A local that is called like a function of the module and takes other arguments."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def two(self, x: Tensor, y: Tensor | None) -> Tensor:
        return x * 2 if y is None else y

    def forward(self, x: Tensor) -> Tensor:
        y = mix(self.linear(x), x if self.config.off else None)
        return self.other(y)

    def other(self, y: Tensor) -> Tensor:
        mix = self.two
        return mix(y, y if self.config.off else None)


DEFAULT = 2.0


class DefaultReads(nn.Module):
    """Defaults that are names of the module, hidden by the caller's locals."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = HasDefaults(config)

    def forward(self, x: Tensor) -> Tensor:
        DEFAULT = None  # noqa: N806
        y = self.child(x)
        return y if DEFAULT is None else x


class HasDefaults(nn.Module):
    def __init__(self, config: Options, by: float = DEFAULT) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.by = by

    def forward(self, x: Tensor, scale: float | None = DEFAULT, act: Any = F.gelu) -> Tensor:
        if scale is None:
            return self.linear(x)
        return act(self.linear(x)) * scale * self.by


DEFAULTS = Options()


class DefaultReadsConfig(nn.Module):
    """Defaults that read a config of the module's own."""

    def __init__(self, config: Options, by: float = DEFAULTS.scale) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.by = by

    def forward(self, x: Tensor, layers: int = DEFAULTS.layers) -> Tensor:
        return self.linear(x) * self.by * layers


@torch.no_grad()
def frozen_mean(x: Tensor) -> Tensor:
    return x.mean()


class DecoratedMethods(nn.Module):
    """Decorators on methods: of torch, of the standard library and of the user."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    @torch.no_grad()
    def frozen(self, x: Tensor) -> Tensor:
        return x * 2 if self.config.flag else x

    @staticmethod
    def halved(x: Tensor) -> Tensor:
        return x / 2

    @classmethod
    def name_length(cls, by: int) -> int:
        return by

    @functools.cached_property
    def size(self) -> int:
        return self.config.half

    @property
    def gate(self) -> bool:
        return self.config.flag and not self.config.off

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(self.halved(self.frozen(x))) * self.name_length(2) + frozen_mean(x)
        return y * self.size if self.gate else y


def replaced(cls: type) -> type:
    class Other(cls):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    Other.__qualname__ = Other.__name__ = cls.__name__
    return Other


@replaced
class DecoratedClass(nn.Module):  # refused: DecoratedClass
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def marked_class(cls: type) -> type:
    cls.marked = True  # type: ignore[attr-defined]
    return cls


@marked_class
class MarkedClass(nn.Module):  # refused: MarkedClass
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def hide() -> type[nn.Module]:
    class Hidden(nn.Module):  # refused: Hidden
        def __init__(self, config: Options) -> None:
            super().__init__()
            self.linear = nn.Linear(config.width, config.width)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    return Hidden


def spec_Hidden() -> ModuleSpec:
    return ModuleSpec(hide(), params={"config": Options()})
