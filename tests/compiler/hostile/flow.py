"""Locals: bound in loops, branches, handlers and functions of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc.templates import ModuleSpec, build_module

from .parts import Options


class LoopLocals(nn.Module):
    """A name known before the loop is another in its second round."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        first = True
        mode = None
        for _ in range(3):
            if first:
                x = self.linear(x)
            else:
                x = x * 2
            if mode is None:
                x = x + 1
            first = False
            mode = "again"
        else:
            last = self.config.off
        return x if first or last else x * 3


class WhileLoop(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        go = self.config.flag
        rounds = 0
        while go:
            x = self.linear(x)
            rounds += 1
            go = rounds < self.config.layers
        while self.config.flag:
            x = x + 1
            if x.shape[0]:
                break
        while self.config.off:
            x = x * 100
        return x if go else x * rounds


class TryFinally(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.count = 0
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        done = False
        try:
            y = self.linear(x)
            done = True
            if self.config.flag:
                return y * (1 + self.count)
            raise ValueError
        except ValueError:
            return x
        finally:
            if done:
                self.count += 1


class With(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        frozen = None
        with torch.no_grad():
            frozen = x * 2
            if self.config.flag:
                frozen = frozen + 1
        if frozen is not None:
            x = x + frozen
        with torch.enable_grad() as nothing:
            if nothing is None and self.config.off:
                return x
        return self.linear(x)


class Walrus(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        flag = None
        if (flag := x.shape[0]) > 1:
            x = x + flag
        if (limit := self.config.limit) is not None:
            x = x + limit
        if self.config.flag and (n := x.shape[1]):
            x = x * n
        if self.config.flag or (k := 3):
            k = 5
        size = None
        rows = [size := i for i in range(3)]
        return self.linear(x) * sum(rows) + (size or 100) + k if flag else x


class Deleted(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        flag = self.config.flag
        y = self.linear(x)
        if flag:
            y = y + 1
        del flag
        try:
            return y if flag else x  # noqa: F821
        except NameError:
            return y * 2


class Augmented(nn.Module):
    """Augmented assignment of names that folding knows."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        size = config.width
        if config.flag:
            size *= 2
        gate = config.flag
        gate &= config.off
        self.gate = gate
        self.up = nn.Linear(config.width, size)
        self.down = nn.Linear(size, config.width)

    def forward(self, x: Tensor) -> Tensor:
        scale = None
        scale = 2 if self.gate else 3
        scale **= 2
        x = self.down(self.up(x))
        x *= scale
        return x


class Targets(nn.Module):
    """Tuple, star and attribute targets; a chain of targets; a swap."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.a, self.b = True, None
        self.c = self.d = config.off
        (self.e, *self.rest), self.f = (1, 2, 3), config.missing
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a, self.b
        a, b = b, a
        if a:
            x = x * 100
        if b:
            x = x + 1
        if self.c or self.d or self.f:
            x = x * 100
        return self.linear(x) * self.e + len(self.rest)


class NestedFunction(nn.Module):
    """Functions inside forward: bound late, with locals of their own."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        flag = True

        def shadow(y: Tensor) -> Tensor:
            flag = y.shape[0] > 100
            if flag:
                return y * 100
            return y + self.config.scale

        def late(y: Tensor) -> Tensor:
            return y * 2 if flag else y * 3

        flag = False
        total = 0

        def count(y: Tensor, by: float = self.config.scale) -> Tensor:
            nonlocal total
            total += 1
            return y * by

        x = count(count(late(shadow(x))))
        return self.linear(x) * total


class Lambdas(nn.Module):
    """The config is read inside lambdas, and by their defaults."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.act = (lambda y: F.gelu(y)) if config.kind == "gelu" else (lambda y: y)
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        scaled = lambda y, by=self.config.half: y * by if self.config.flag else y  # noqa: E731
        pick = lambda config: config + 1  # noqa: E731
        return self.act(self.linear(scaled(x))) + pick(self.config.layers)


class Comprehensions(nn.Module):
    """The config is read in a condition; a comprehension's name hides an import and a local."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            [
                nn.Linear(config.width, config.width)
                for i in range(config.layers + 1)
                if i > 0 or not config.flag
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        flag = None
        parts = [F * 2 for F in x.unbind(-1) if self.config.flag]
        flags = {flag: flag for flag in range(3) if flag or self.config.off}
        kept = tuple(p for p in parts if p is not flag)
        y = F.gelu(torch.stack(kept, -1))
        for layer in self.layers:
            y = layer(y)
        return y * len(flags) + sum(i if self.config.flag else 100 for i in range(2))


class Counts(nn.Module):
    """`global` changes a name of the module."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        global CALLS  # refused: Counts
        CALLS += 1
        return self.linear(x) * CALLS


CALLS = 0


def count_call() -> int:
    global HELPER_CALLS  # refused: CountsInHelper
    HELPER_CALLS += 1
    return HELPER_CALLS


HELPER_CALLS = 0


class CountsInHelper(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * count_call()


class Yields(nn.Module):
    """Folding takes the only `yield` away; the function must stay a generator."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def parts(self, x: Tensor) -> Iterator[Tensor]:
        for part in x.unbind(1):
            yield part if self.config.flag else part * 100

    def none(self, x: Tensor) -> Iterator[Tensor]:
        if self.config.flag:
            return
        yield x

    def nothing(self, x: Tensor) -> Iterator[Tensor]:
        if self.config.off:
            yield x

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stack([self.linear(p) for p in self.parts(x)], 1)
        for more in (*self.none(x), *self.nothing(x)):
            y = y + more
        return y


class GeneratorForward(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, unused: Tensor | None = None) -> Iterator[Tensor]:
        if self.config.flag:
            yield self.linear(x)
        yield x * 2


class UsesGenerator(nn.Module):
    """A child whose forward is a generator."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for y in self.child(x):
            total = total + y
        return total


def spec_UsesGenerator() -> ModuleSpec:
    return ModuleSpec(
        UsesGenerator,
        params={"config": Options()},
        submodules={"child": ModuleSpec(GeneratorForward)},
    )


class LoopVariable(nn.Module):
    """A name runs over modules in one loop, over others in the next, and is then a function."""

    def __init__(self, config: Options, submodules: Any = None) -> None:
        super().__init__()
        self.first = nn.ModuleList([build_module(submodules["a"], config) for _ in range(2)])
        self.second = nn.ModuleList([build_module(submodules["b"], config) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.first:
            x = layer(x, None)
        for layer in self.second:
            x = layer(x, x)
        layer = torch.add
        return layer(x, x)


class TakesOne(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x * mask
        return self.linear(x)


class TakesBoth(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return self.linear(x)
        return self.linear(x) * mask


def spec_LoopVariable() -> ModuleSpec:
    return ModuleSpec(
        LoopVariable,
        params={"config": Options()},
        submodules={"a": ModuleSpec(TakesOne), "b": ModuleSpec(TakesBoth)},
    )


class UsedBeforeReturn(nn.Module):
    """A name bound in one branch only, read after it; a conditional return before its use."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        if y is None:
            scale = 2 if self.config.flag else 3
            if not self.training:
                return self.linear(x) * scale
        else:
            scale = 5
        if self.config.off:
            scale = 7
        return self.linear(x) + scale


class MutableDefault(nn.Module):
    """A default that remembers."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, seen: list[int] = []) -> Tensor:  # noqa: B006
        seen = self.remember()
        return self.linear(x) * len(seen)

    def remember(self, seen: list[int] = []) -> list[int]:  # noqa: B006
        seen.append(1)
        return seen


class RebindsSelf(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        self = self.linear  # type: ignore[assignment]  # refused: RebindsSelf
        return self(x)


class Awaits(nn.Module):
    """A coroutine that forward runs by itself."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    async def part(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.config.flag else x

    def forward(self, x: Tensor) -> Tensor:
        work = self.part(x)
        try:
            work.send(None)
        except StopIteration as done:
            return done.value
        return x
