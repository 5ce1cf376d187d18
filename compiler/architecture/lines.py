"""A forward as lines that read like a page: `return a + mlp(pre_mlp_layernorm(a))`.

Local names of the page are not there to be had, nor would they be compared: a value that is used
once stands where it is used, others are named a, b, c.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .calls import Name, Step, Value, values
from .flow import Flow
from .line_words import (
    AMONG_OTHERS,
    FACTS,
    IN_PLACE,
    INFIX,
    INLINED,
    KNOWN,
    METHODS,
    PROPERTIES,
    SIZE_NAMES,
    SIZES,
    STRENGTH,
    STRONGEST,
    SWAPPED,
    UNSAID,
)
from .loops import Loop
from .steps import writes


def lines_of(flow: Flow, *, places: int, sizes: bool = False) -> tuple[str, ...]:
    """The lines of a forward; `places` is how long the sequence is that it ran on.

    Without `sizes` a number that is a size is `n`, and that of the places `s`.
    """
    return tuple(_Writer(flow, places, sizes).lines())


Texts = dict[tuple[int | str, int], str]  # of values, by source and part


class _Writer:
    """`given`: the texts of values from outside; `kept`: names that values have to have; both of
    the body of a loop, which shares its letters with what is around it."""

    def __init__(
        self,
        flow: Flow,
        places: int,
        sizes: bool,
        given: Texts | None = None,
        kept: Texts | None = None,
        letters: Iterator[str] | None = None,
    ) -> None:
        self.flow, self.places, self.sizes = flow, places, sizes
        self.kept = kept or {}
        used = [v for step in flow.steps for v in values((step.args, step.kwargs))]
        used += list(values(flow.returned))
        self.uses = Counter(v.source for v in used)
        # How many tensors the step takes that takes a value.
        self.taker: dict[int | str, int] = {}
        for step in flow.steps:
            taken = list(values((step.args, step.kwargs)))
            self.taker |= {v.source: len(taken) for v in taken}
        self.places_used = Counter((v.source, v.part) for v in used)
        self.texts: Texts = dict(given or {})
        self.strength: dict[str, int] = {}  # of texts that are sums and the like: see STRENGTH
        self.inputs: set[str] = set()
        shown = [*used, *(r for step in flow.steps for r in step.results)]
        self.dimensions = {d for v in shown for d in v.shape}
        self._name_inputs()
        self.letters = letters or (name for name in _names() if name not in self.inputs)

    def _name_inputs(self) -> None:
        plain = iter(("x", "y", "z", *(f"x{n}" for n in range(2, 1000))))
        for number, (word, form) in enumerate(self.flow.inputs):
            found = list(values(form))
            if not found:
                continue
            name = word or next(plain)
            self.inputs.add(name)
            for part, _ in enumerate(found):
                text = name if len(found) == 1 else f"{name}[{part}]"
                self.texts[f"input {number}", -1 if len(found) == 1 else part] = text

    def lines(self) -> Iterator[str]:
        for number, step in enumerate(self.flow.steps):
            loop = self.flow.loops.get(number)
            if loop is not None and len(loop.body) > 1:
                yield from self.loop(number, loop)
                continue
            text = self.expression(number, step)
            if writes(step):
                yield self.written(step, text)
                continue
            if self.is_inlined(number, step, text):
                for result in step.results:
                    self.texts[number, result.part] = text
                continue
            if any((number, result.part) in self.kept for result in step.results):
                yield self.assigned(number, step, text)
                continue
            known = KNOWN.get(step.name)
            if known is not None and known not in self.inputs:
                self.inputs.add(known)
                for result in step.results:
                    name = known if result.part < 0 else f"{known}[{result.part}]"
                    self.texts[number, result.part] = name
                yield f"{known} = {text}"
                continue
            names = [next(self.letters) for _ in step.results]
            for result, name in zip(step.results, names, strict=True):
                self.texts[number, result.part] = name
            yield f"{', '.join(names)} = {text}"
        yield f"return {self.value(self.flow.returned)}"

    def loop(self, number: int, loop: Loop) -> Iterator[str]:
        """A loop whose layers have steps between them, as a page writes it."""
        names: dict[tuple[int | str, int], str] = {}
        for value, initial in loop.initial:
            names[value.source, value.part] = name = next(self.letters)
            yield f"{name} = {self.value(initial)}"
        given: Texts = {(f"outside {n}", part): text for (n, part), text in self.texts.items()}
        given |= {key: text for key, text in self.texts.items() if isinstance(key[0], str)}
        place = 0  # of a result among those of the whole loop
        kept: dict[tuple[int | str, int], str] = {}
        for step_number, step in enumerate(loop.body):
            for result in step.results:
                carried = names.get((f"before {step_number}", result.part))
                used = self.places_used.get((number, place))
                if carried or used:
                    kept[step_number, result.part] = carried or next(self.letters)
                    self.texts[number, place] = kept[step_number, result.part]
                place += 1
        inner = Flow((), loop.body, (), {})
        body = _Writer(inner, self.places, self.sizes, given | names, kept, self.letters)
        yield f"for each of {loop.name}{loop.order}:"
        yield from (f"    {line}" for line in list(body.lines())[:-1])

    def is_inlined(self, number: int, step: Step, text: str) -> bool:
        if step.name in KNOWN:
            return False
        kept = any((number, result.part) in self.kept for result in step.results)
        if self.uses[number] > 1 or len(step.results) > 1 or kept:
            return False
        last = any(v.source == number for v in values(self.flow.returned))
        if last and number == len(self.flow.steps) - 1:
            return True
        return len(text) <= (AMONG_OTHERS if self.taker.get(number, 1) > 2 else INLINED)

    def assigned(self, number: int, step: Step, text: str) -> str:
        """A step whose values have names that are given."""
        names = []
        for result in step.results:
            key = number, result.part
            self.texts[key] = self.kept.get(key) or next(self.letters)
            names.append(self.texts[key])
        return f"{', '.join(names)} = {text}"

    def written(self, step: Step, text: str) -> str:
        """A step that changes its first argument, which keeps its name."""
        target, *others = step.args
        name = self.value(target, within=STRONGEST)
        for result in step.results:
            self.texts[result.source, result.part] = name
        if step.name == "__setitem__":
            return f"{name}[{self.index(others[0])}] = {self.value(others[1])}"
        sign = IN_PLACE.get(step.name)
        if sign and len(others) == 1 and not step.kwargs:
            return f"{name} {sign} {self.value(others[0])}"
        return text

    def expression(self, number: int, step: Step) -> str:
        name, args = step.name, list(step.args)
        loop = self.flow.loops.get(number)
        if step.kind == "child":
            given = _starred([self.value(v) for _, v in step.kwargs])
            varied = "" if loop is None or len(loop.pattern) == 1 else " in turn"
            return f"{name}({', '.join(given)}){varied}{'' if loop is None else loop.order}"
        if step.kind == "torch":
            infix = self.infix(name, args, step.kwargs)
            if infix is not None:
                return infix
            if name in PROPERTIES:
                return f"{self.value(args[0], within=STRONGEST)}.{name}"
            if name == "__getitem__":
                return f"{self.value(args[0], within=STRONGEST)}[{self.index(args[1])}]"
        said = [self.argument(step, place, v) for place, v in enumerate(args)]
        said += [
            f"{n}={self.named(n, v)}"
            for n, v in step.kwargs
            if self.sizes or self.is_said(step, n, v)
        ]
        said = _starred([text for text in said if text])
        if step.kind == "torch" and name in METHODS and args and isinstance(args[0], Value):
            return f"{self.value(args[0], within=STRONGEST)}.{name}({', '.join(said[1:])})"
        return f"{name}({', '.join(said)})"

    def infix(self, name: str, args: list[Any], kwargs: Any) -> str | None:
        if kwargs or not args:
            return None
        if name in ("neg", "__neg__") and len(args) == 1:
            return f"-{self.value(args[0], within=STRONGEST)}"
        sign = INFIX.get(name) or SWAPPED.get(name)
        if sign is None or len(args) != 2:
            return None
        if name in SWAPPED or (sign in "+*" and not isinstance(args[1], Value)):
            args = args[::-1]  # `2 - x`; and `2 * x`, which cannot be told from `x * 2`
        own = STRENGTH.get(sign, 0)
        # `(a == b) == c` and `(a ** b) ** c` are other things without their parentheses.
        first = own + 1 if own == 1 or sign == "**" else own
        sides = [self.value(args[0], within=first), self.value(args[1], within=own + 1)]
        text = f"{sides[0]} {sign} {sides[1]}"
        self.strength[text] = own
        return text

    def argument(self, step: Step, place: int, value: Any) -> str:
        if not self.sizes and step.kind == "runtime" and step.name in FACTS and not _held(value):
            return ""
        sized = step.kind == "torch" and step.name in SIZES and place not in SIZES[step.name]
        return self.value(value, sized=sized)

    def is_said(self, step: Step, name: str, value: Any) -> bool:
        if step.kind == "runtime" and step.name in FACTS:
            return _held(value)
        return name not in UNSAID and value is not None and value is not False

    def named(self, name: str, value: Any) -> str:
        return self.value(value, sized=name in SIZE_NAMES)

    def index(self, value: Any) -> str:
        parts = value if isinstance(value, tuple) and not _is_slice(value) else (value,)
        return ", ".join(self.value(part, sized=True) for part in parts)

    def value(self, value: Any, *, sized: bool = False, within: int = 0) -> str:
        if isinstance(value, Value):
            text = self.texts.get((value.source, value.part), str(value.source))
            return f"({text})" if self.strength.get(text, STRONGEST) < within else text
        if isinstance(value, Name):
            return value.text
        if _is_slice(value):
            start, stop, step = ("" if v is None else self.value(v, sized=sized) for v in value[1:])
            return f"{start}:{stop}" + (f":{step}" if step else "")
        if isinstance(value, tuple):
            whole = self.whole(value)
            if whole is not None:
                return whole
            inner = ", ".join(self.value(v, sized=sized) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if type(value) is int and not self.sizes:
            if value == self.places:
                return "s"
            return "n" if sized and value > 0 else str(value)
        if type(value) is int and value == self.places:
            return "s"
        if isinstance(value, float) and not self.sizes:
            return self.number(value)
        return repr(value)

    def number(self, value: float) -> str:
        """The root of a size, or one over it, is a size too: `x * √n`."""
        for square, text in ((value * value, "√n"), (1 / (value * value or 1), "1/√n")):
            whole = round(square) if square < 1e9 else 0
            if whole >= 32 and whole in self.dimensions and abs(square - whole) < 1e-9 * whole:
                return text
        return repr(value)

    def whole(self, value: tuple[Any, ...]) -> str | None:
        """The name of what holds several tensors, where all of it is handed on."""
        found = [v for v in value if isinstance(v, Value)]
        if len(found) != len(value) or len(found) < 2 or len({v.source for v in found}) != 1:
            return None
        if [v.part for v in found] != list(range(len(found))):
            return None
        name, bracket, _ = self.texts.get((found[0].source, 0), "").partition("[0]")
        return name if bracket else None


def _names() -> Iterator[str]:
    letters = [c for c in string.ascii_lowercase if c not in "lonsxyz"]
    yield from letters
    for number in range(2, 10_000):
        yield from (f"{c}{number}" for c in letters)


def _starred(said: list[str]) -> list[str]:
    """`rotary[0], rotary[1]` as `*rotary`."""
    for place, text in enumerate(said[:-1]):
        name, first, rest = text.partition("[0]")
        count = 1
        while (
            first and not rest and said[place + count : place + count + 1] == [f"{name}[{count}]"]
        ):
            count += 1
        if count > 1:
            return [*said[:place], f"*{name}", *said[place + count :]]
    return said


def _held(value: Any) -> bool:
    return any(True for _ in values(value))


def _is_slice(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and value[0] == "slice"
