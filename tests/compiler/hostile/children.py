"""Children that the spec gives: called, shared, handed on and reached in ways that hide the call."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from specc.templates import IdentityOp, ModuleSpec, build_module

from .parts import Options, Scaled, Two


def owner(cls: type[nn.Module], **children: Any) -> ModuleSpec:
    return ModuleSpec(cls, params={"config": Options()}, submodules=children)


class TwoCalls(nn.Module):
    """One child, called without a mask and with one."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(x, None)
        return self.child(y, x, scale=2.0)


def spec_TwoCalls() -> ModuleSpec:
    return owner(TwoCalls, child=ModuleSpec(Two))


class CallsForward(nn.Module):
    """`child.forward(...)` is a call too, and so is a bound method kept in a local."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(x)
        y = self.child.forward(y, x)
        again = self.child.__call__
        return again(y, x * 2)


def spec_CallsForward() -> ModuleSpec:
    return owner(CallsForward, child=ModuleSpec(Two))


class CallsItself(nn.Module):
    """Its forward calls itself with what no owner passes."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, depth: Tensor | None = None) -> Tensor:
        if depth is None:
            return self.forward(self(x, x), x * 2)
        return self.linear(x) + depth


class OwnsRecursive(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_OwnsRecursive() -> ModuleSpec:
    return owner(OwnsRecursive, child=ModuleSpec(CallsItself))


class StarCalls(nn.Module):
    """Arguments by `*` and `**`."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        args = (x, x)
        y = self.child(*args)
        y = self.child(x=y, **{"mask": x})
        return self.child(mask=None, x=y)


def spec_StarCalls() -> ModuleSpec:
    return owner(StarCalls, child=ModuleSpec(Two))


class TakesStar(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, /, *rest: Tensor, scale: float = 1.0, **more: Tensor) -> Tensor:
        y = self.linear(x) * scale
        for part in (*rest, *more.values()):
            y = y + part
        return y


class CallsStar(nn.Module):
    """A forward that takes `*rest`, keyword-only and `**more`."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(x, x, x, scale=0.5)
        return self.child(y, extra=x)


def spec_CallsStar() -> ModuleSpec:
    return owner(CallsStar, child=ModuleSpec(TakesStar))


class InSequential(nn.Module):
    """Children of the spec in a Sequential: the second gets what the first returns."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.stack = nn.Sequential(
            build_module(submodules["a"], config),
            nn.GELU(),
            build_module(submodules["b"], config),
        )
        self.named = nn.Sequential(OrderedDict(only=build_module(submodules["b"], config)))

    def forward(self, x: Tensor) -> Tensor:
        return self.named(self.stack(x))


def spec_InSequential() -> ModuleSpec:
    return owner(InSequential, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class InModuleDict(nn.Module):
    """Children in a ModuleDict: by key, by `items()` and by attribute."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.heads = nn.ModuleDict(
            {
                "a": build_module(submodules["a"], config),
                "b": build_module(submodules["b"], config),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.heads.a(x, None)
        x = self.heads["b"](x)
        for _, head in self.heads.items():
            x = head(x, x)
        return x


def spec_InModuleDict() -> ModuleSpec:
    return owner(InModuleDict, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class Iterated(nn.Module):
    """Children reached by `children()`, `named_children()`, `_modules` and `get_submodule`."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.a = build_module(submodules["a"], config)
        self.b = build_module(submodules["b"], config)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b(self.a(x, None), None)
        for child in self.children():
            x = child(x, x)
        x = self.get_submodule("a")(x, x)
        return self._modules["b"](x, x)


def spec_Iterated() -> ModuleSpec:
    return owner(Iterated, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class Indexed(nn.Module):
    """Layers by index, by slice, by zip, by enumerate and backwards."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [build_module(submodules["child"], config) for _ in range(config.layers)]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(config.width) for _ in range(config.layers)])

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        x = self.layers[0](x, x)
        for layer in self.layers[1:]:
            x = layer(x, x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = layer(norm(x), x)
        for layer in reversed(self.layers):
            x = layer(x, mask=None)
        return x


def spec_Indexed() -> ModuleSpec:
    return owner(Indexed, child=ModuleSpec(Two))


class Kept(nn.Module):
    """A child under its own name, in a list and in a closure: three ways to call it."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        child = build_module(submodules["child"], config)
        self.child = child
        self.plain = [child]
        self.call = lambda x: child(x, x)

    def forward(self, x: Tensor) -> Tensor:
        y = self.child(x, None)
        return self.call(self.plain[0](y, x))


def spec_Kept() -> ModuleSpec:
    return owner(Kept, child=ModuleSpec(Two))


class Holder(nn.Module):
    """Is handed a child that somebody else built."""

    def __init__(self, config: Options, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.inner(x, x))


class Shares(nn.Module):
    """One child under two owners, handed from one constructor to the next."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)
        self.left = build_module(submodules["holder"], config, inner=self.child)
        self.right = Holder(config, self.child)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(self.child(x))


def spec_Shares() -> ModuleSpec:
    return owner(Shares, child=ModuleSpec(Two), holder=ModuleSpec(Holder))


class HandedIn(nn.Module):
    """Children that the spec hands in built, one of them used twice in the constructor."""

    def __init__(self, config: Options, norm: nn.Module, inner: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.inner = inner
        self.again = nn.ModuleList([norm, inner])

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.norm(x), None)
        return self.again[1](x, x)


def spec_HandedIn() -> ModuleSpec:
    return owner(HandedIn, norm=ModuleSpec(Scaled, params={"factor": 0.5}), inner=ModuleSpec(Two))


class Hooked(nn.Module):
    """A hook of the child changes what it is called with."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)
        self.child.register_forward_pre_hook(lambda module, args: (args[0], args[0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_Hooked() -> ModuleSpec:
    return owner(Hooked, child=ModuleSpec(Two))


class Checkpointed(nn.Module):
    """Children called by somebody else's function."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)
        self.other = build_module(submodules["child"], config)

    def _both(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.other(x, mask)

    def forward(self, x: Tensor) -> Tensor:
        y = self.other(self.child(x), None)
        y = checkpoint(self.child, y, x, use_reentrant=False)
        y = functools.partial(self.child, mask=x)(y)
        return checkpoint(self._both, y, x, use_reentrant=False)


def spec_Checkpointed() -> ModuleSpec:
    return owner(Checkpointed, child=ModuleSpec(Two))


def run_child(module: nn.Module, x: Tensor) -> Tensor:
    return module.child(x, x)


class PassesSelf(nn.Module):
    """A helper that is handed the module calls its child."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return run_child(self, self.child(x, None))


def spec_PassesSelf() -> ModuleSpec:
    return owner(PassesSelf, child=ModuleSpec(Two))


def twice(forward: Any) -> Any:
    """A decorator that passes another argument on."""

    @functools.wraps(forward)
    def wrapped(self: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return forward(self, forward(self, x, mask), x)

    return wrapped


class DecoratedForward(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    @twice
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.linear(x)
        return y if mask is None else y * mask


class OwnsDecorated(nn.Module):
    """The child's decorator calls its forward with what no owner passes."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_OwnsDecorated() -> ModuleSpec:
    return owner(OwnsDecorated, child=ModuleSpec(DecoratedForward))


class OwnCall(nn.Module):
    """Its `__call__` is its own."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def __call__(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().__call__(x, x)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.linear(x)
        return y if mask is None else y * mask


class OwnsCaller(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_OwnsCaller() -> ModuleSpec:
    return owner(OwnsCaller, child=ModuleSpec(OwnCall))


class NoIdentity(nn.Module):
    """A child that is not there is called, asked about and put into a list."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.norm = build_module(submodules["norm"], config)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        if isinstance(self.norm, IdentityOp):
            x = x + 1
        if self.norm is not None:
            x = x + 2
        return self.linear(x)


def spec_NoIdentity() -> ModuleSpec:
    return owner(NoIdentity, norm=IdentityOp)


class IdentityHandedOn(nn.Module):
    """A child that is not there is handed on as a value."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.norm = build_module(submodules["norm"], config)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        for part in (self.norm, self.linear):  # refused: IdentityHandedOn
            x = part(x)
        return x


def spec_IdentityHandedOn() -> ModuleSpec:
    return owner(IdentityHandedOn, norm=IdentityOp)


class IdentityInList(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [build_module(submodules["norm"], config) for _ in range(2)]  # refused: IdentityInList
        )
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return self.linear(x)


def spec_IdentityInList() -> ModuleSpec:
    return owner(IdentityInList, norm=IdentityOp)


class BuiltInForward(nn.Module):
    """The child is built at the first call."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.config = config
        self.spec = submodules["child"]  # refused: BuiltInForward
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 100:
            return build_module(self.spec, self.config)(x)
        return self.linear(x)


def spec_BuiltInForward() -> ModuleSpec:
    return owner(BuiltInForward, child=ModuleSpec(Two))


class BuiltByHelper(nn.Module):
    """The child is built by a method that the constructor calls."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.config = config
        self.child = self._build(submodules["child"])  # refused: BuiltByHelper

    def _build(self, spec: Any) -> nn.Module:
        return build_module(spec, self.config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_BuiltByHelper() -> ModuleSpec:
    return owner(BuiltByHelper, child=ModuleSpec(Two))


class BuiltInLoop(nn.Module):
    """Children built in a loop, by `append`, with a number that varies."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(config.layers):
            self.layers.append(build_module(submodules["child"], config, factor=0.5 + i))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, None)
        return x


def spec_BuiltInLoop() -> ModuleSpec:
    return owner(BuiltInLoop, child=ModuleSpec(Scaled))


class BuiltMixed(nn.Module):
    """One call that builds children of different classes, and is no plain comprehension."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for name in ("a", "b"):
            self.layers.append(build_module(submodules[name], config))  # refused: BuiltMixed

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def spec_BuiltMixed() -> ModuleSpec:
    return owner(BuiltMixed, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class BuiltPattern(nn.Module):
    """A comprehension whose children differ, with a local called as the page's own name."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        kind = 0.5
        specs = [submodules["a"], submodules["b"], submodules["a"]]
        self.layers = nn.ModuleList([build_module(spec, config) for spec in specs])
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * self.kind


def spec_BuiltPattern() -> ModuleSpec:
    return owner(BuiltPattern, a=ModuleSpec(Two), b=ModuleSpec(Scaled))


class PatternReadsKind(nn.Module):
    """The arguments of such a comprehension read a local that is called `kind`."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        kind = 0.5
        self.layers = nn.ModuleList(
            [
                build_module(spec, config, factor=kind)
                for spec in [submodules["a"], submodules["b"], submodules["a"]]
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Scaled2(Scaled):
    """Another class with the same constructor."""

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return super().forward(x.relu(), bias)


def spec_PatternReadsKind() -> ModuleSpec:
    return owner(PatternReadsKind, a=ModuleSpec(Scaled), b=ModuleSpec(Scaled2))


class UnmetBranch(nn.Module):
    """A child under a condition that no instance met and that nothing decides."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        if torch.cuda.is_available() and torch.cuda.device_count() > 1000:
            self.extra = build_module(submodules["child"], config)  # refused: UnmetBranch

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def spec_UnmetBranch() -> ModuleSpec:
    return owner(UnmetBranch, child=ModuleSpec(Two))


class Fused(nn.Module):
    """Its option is what the machine has: the owner asks, not the spec."""

    def __init__(self, config: Options, fused: bool = False, first: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.fused = fused
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.first:
            y = y + 1
        return y * 100 if self.fused else y


class PassesEnvironment(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        fused = torch.cuda.is_available()
        self.child = build_module(
            submodules["child"], config, fused=fused, first=torch.get_num_threads() < 1000
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


def spec_PassesEnvironment() -> ModuleSpec:
    return owner(PassesEnvironment, child=ModuleSpec(Fused))


class StarConstructor(nn.Module):
    def __init__(self, config: Options, *sizes: int, **more: float) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.total = sum(sizes) + sum(more.values())

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.total


class BuildsStar(nn.Module):
    """A constructor that takes `*sizes` and `**more`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = StarConstructor(config, 1, 2, extra=0.5)  # refused: BuildsStar

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


class BuildsWithStar(nn.Module):
    """A call with `*` and `**`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        options = {"factor": 2.0, "gated": True}
        self.child = Scaled(config, **options)  # refused: BuildsWithStar

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


class LogsShared(nn.Module):
    """Its list is the spec's: all instances write to one."""

    def __init__(self, config: Options, log: list[int]) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.log = log

    def forward(self, x: Tensor) -> Tensor:
        self.log.append(1)  # refused: SharesList
        return self.linear(x) * len(self.log)


class SharesList(nn.Module):
    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.a = build_module(submodules["child"], config)
        self.b = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def spec_SharesList() -> ModuleSpec:
    return owner(SharesList, child=ModuleSpec(LogsShared, params={"log": []}))


class ReadsList(nn.Module):
    """A list in the spec's params that is only read."""

    def __init__(self, config: Options, factors: list[float]) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.factors = factors

    def forward(self, x: Tensor) -> Tensor:
        out = []
        for factor in self.factors:
            out.append(self.linear(x) * factor)
        return torch.stack(out).sum(0)


def spec_ReadsList() -> ModuleSpec:
    return ModuleSpec(ReadsList, params={"config": Options(), "factors": [0.5, 2.0]})


class Counter(nn.Module):
    """A mutable default and a mutable class attribute: one of each for all instances."""

    shared: list[int] = []  # noqa: RUF012  # refused: CountsTogether

    def __init__(self, config: Options, gated: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        self.shared.append(1)
        y = self.linear(x) * len(self.shared)
        return y.relu() if self.gated else y


class CountsTogether(nn.Module):
    """Two instances that the page would write as two classes."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.a = Counter(config)
        self.b = Counter(config, True)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


class Instance(nn.Module):
    """Is handed a module that was made before the build."""

    def __init__(self, config: Options, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.inner(x))


def spec_Instance() -> ModuleSpec:
    inner = Scaled(Options(), 2.0)
    return ModuleSpec(Instance, params={"config": Options(), "inner": inner})  # refused: Instance


class Middle(nn.Module):
    """Hands what it is given to its child, None or not."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.child(x, mask)


class CallsMiddle(nn.Module):
    """Two middles of one class, one called with a mask: they share a page class or they don't."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.middles = nn.ModuleList(
            [build_module(submodules["middle"], config) for _ in range(2)]
        )
        self.single = build_module(submodules["middle"], config)

    def forward(self, x: Tensor) -> Tensor:
        for middle in self.middles:
            x = middle(x)
        return self.single(x, x)


def spec_CallsMiddle() -> ModuleSpec:
    return owner(
        CallsMiddle, middle=ModuleSpec(Middle, submodules={"child": ModuleSpec(Two)})
    )


class BarePart(nn.Module):
    """Between two of ours: holds nothing of a config."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class NoConfig(nn.Module):
    """No config anywhere in the tree."""

    def __init__(self, width: int = 8, submodules: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.child = build_module(submodules["child"])

    def forward(self, x: Tensor) -> Tensor:
        return self.child(self.linear(x))


def spec_NoConfig() -> ModuleSpec:
    return ModuleSpec(NoConfig, submodules={"child": ModuleSpec(BarePart)})
