"""Tests on the config, and expressions whose value is a decision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .parts import Kind, Options


class Chain(nn.Module):
    """`elif` chains, conditional expressions and comments between them."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width, bias=not config.off)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.kind == "relu":
            x = x.relu()
        elif self.config.off:
            x = x * 7
        elif self.config.kind == "gelu" and not self.config.off:
            # the one that is taken
            x = F.gelu(x)
        else:
            x = x.tanh()
        return (self.linear(x) if self.config.flag else x) * (2 if self.config.off else 3)


class Precedence(nn.Module):
    """What is put in the place of a test must bind as the test did."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        a = (1 + 2 if self.config.flag else 5) * 2
        b = -(1 + 1 if self.config.flag else 5) ** 2
        c = (x + 1 if self.config.flag else x).sum()
        d = 10 - (3 - 1 if self.config.flag else 0)
        e = (lambda y: y + 1 if self.config.flag else y)(x)
        f = (self.config.flag and (x - 1)) * 2
        g = not (self.config.off or x.shape[0] > 100)
        h = (self.config.missing or 1) + (self.config.limit and 2)
        return self.linear(x) * a + b + c + d + e + f + g + h


class ValueOfAnd(nn.Module):
    """`x and True` is a value: neither side may be dropped but a known left one."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        last = rows and self.config.flag
        other = rows or self.config.flag
        third = self.config.flag and rows
        fourth = self.config.missing or rows
        return self.linear(x) * int(last) + other * 2 + third * 3 + fourth * 5


class Effects(nn.Module):
    """A call on the left of a known right side still runs."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.count = 0
        self.linear = nn.Linear(config.width, config.width)

    def note(self) -> bool:
        self.count += 1
        return self.count > 1

    def forward(self, x: Tensor) -> Tensor:
        if self.note() or self.config.flag:
            x = x + self.count
        if self.config.off and self.note():
            x = x * 100
        if self.config.flag or self.note():
            x = x + 1
        if self.note() and self.config.off:
            x = x * 100
        unused = self.note()
        return self.linear(x) * self.count


class MovedPastEffect(nn.Module):
    """A value read before a call that changes it, with a folded branch between the two."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.count = 1
        self.linear = nn.Linear(config.width, config.width)

    def bump(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        before = self.count * 10
        if self.config.off:
            x = x * 100
        return self.bump(x) * before


class MovedPastInPlace(nn.Module):
    """The same with a tensor that is changed in place."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        doubled = y.detach() * 2
        z = doubled * 1
        if self.config.off:
            x = x * 100
        return doubled.add_(1) * y + z


class Chained(nn.Module):
    """Chained comparisons, `in`, `is` and tests of numbers."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)
        self.deep = config.layers > 24

    def forward(self, x: Tensor) -> Tensor:
        if 0 < self.config.scale < 1:
            x = x + 1
        if self.config.kind in ("relu", "gelu"):
            x = x + 2
        if self.config.layers > 24:
            x = x * 100
        if 1 < self.config.layers <= x.shape[0] < 100:
            x = x + 3
        if self.config.limit is not None and self.config.limit > 2:
            x = x + 4
        if self.deep:
            x = x * 7
        return self.linear(x)


class IsString(nn.Module):
    """`is` between strings is a question about objects, not values."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        name = "gelu"
        if self.config.kind is name:
            x = x + 2
        if self.config.layers is 2:  # noqa: F632
            x = x + 3
        return self.linear(x)


class NumberChooses(nn.Module):
    """A number of the config decides which child there is: the page has to assert it."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        if config.layers > 24:
            self.linear = nn.Linear(config.width, config.width, bias=False)
        else:
            self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * (2 if self.config.zero > 0.0 else 3) * self.config.layers


class ShapeDecides(nn.Module):
    """A test of the input stays."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 1 and self.config.flag:
            scale = 2
        else:
            scale = 3 if self.config.flag else 4
        if self.config.flag and x.shape[1] == 3:
            scale = scale + 1
        return self.linear(x) * scale


class RaisingTest(nn.Module):
    """A test that raises when it is evaluated, and is caught."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        try:
            if self.config.width / self.config.zero > 1:
                x = x * 100
        except ZeroDivisionError:
            x = x + 1
        return self.linear(x)


class Asserts(nn.Module):
    """An assert on options goes, one on numbers and one on the input stay."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        assert config.flag, "flag must be set"
        assert config.width % 2 == 0, "width must be even"
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 3 and self.config.flag
        assert self.config.kind == "gelu", f"kind is {self.config.kind}"
        return self.linear(x)


class Matched(nn.Module):
    """`match` is left as it is."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.flag = True
        self.linear = nn.Linear(config.width, config.width)
        match config.kind:
            case "gelu":
                self.flag = False
            case _:
                self.extra = nn.Linear(3, 3)
        self.scale = 2 if self.flag else 3

    def forward(self, x: Tensor) -> Tensor:
        match self.config.kind:
            case "relu":
                x = x.relu()
            case "gelu" if self.config.flag:
                x = F.gelu(x)
        match x.shape:
            case (b, 3, w):
                x = x + b + w
        return self.linear(x) * self.scale


class Enums(nn.Module):
    """Options that are members of an enum."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.gated = config.choice is Kind.GATED
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.config.choice == Kind.PLAIN:
            return y
        return y * y.sigmoid() if self.gated else y


class EnumOnPage(nn.Module):
    """An enum that the page would have to write into its Config."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.choice.value  # refused: EnumOnPage


class Environment(nn.Module):
    """What the machine has is asked where the page runs."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.fused = torch.cuda.is_available()
        self.rounds = 1 if torch.get_num_threads() > 1000 else 2

    def forward(self, x: Tensor) -> Tensor:
        if torch.cuda.is_available() and x.is_cuda:
            x = x + 100
        if not self.fused:
            x = x + 1
        if int(torch.__version__.split(".")[0]) >= 2:
            x = x + 2
        return self.linear(x) * self.rounds


HAVE_FAST = hasattr(torch, "surely_not_there")


class GlobalFlag(nn.Module):
    """A module-level flag may depend on the machine: it is copied, not folded."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.fast = HAVE_FAST and config.flag

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y if HAVE_FAST or self.fast else y * 2


ACT = {"gelu": F.gelu, "relu": F.relu}


class Dispatch(nn.Module):
    """A table of functions is copied whole."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.act = ACT[config.kind]
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x)) + ACT[self.config.kind](x)


class Formats(nn.Module):
    """Options inside f-strings, with quotes, formats and `%`."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)
        self.name = f"{config.kind}_{'a' if config.flag else 'b'}{config.width:>4}"

    def forward(self, x: Tensor) -> Tensor:
        text = f"{self.config.kind!r} {self.config.flag} {self.name}" + "%s" % self.config.kind
        text += "{} {k}".format(self.config.layers, k=self.config.kind)
        return self.linear(x) * len(text)


class Inspected(nn.Module):
    """`isinstance` of a child, `is None` of one that is not there."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width) if config.flag else None
        self.gate = nn.Linear(config.width, config.width) if config.off else None
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if self.norm is not None:
            x = self.norm(x)
        if isinstance(self.norm, nn.LayerNorm):
            x = x * 2
        if isinstance(self.linear, (nn.Conv1d, nn.LayerNorm)):
            x = x * 100
        if self.gate is not None:
            x = x * self.gate(x)
        return self.linear(x)


class EarlyReturn(nn.Module):
    """A return that is decided, with code behind it."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 100:
            return x
        y = self.linear(x)
        if self.config.flag:
            return y * 2
        z = y * 3
        return z
