"""What a drawing is made of, before anything has a place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .numbers import short
from .svg_text import clean

_LONGEST = 200  # letters of paths in a tooltip
INSIDE = -1  # the other end of a link that comes from its frame's input, or goes to its output


THIN = frozenset({"norm", "activation", "dropout", "identity"})


@dataclass(frozen=True)
class Marks:
    """What a part communicates in its forward: before its work, during it, after it."""

    entry: tuple[str, ...] = ()
    during: tuple[str, ...] = ()
    exit: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entry or self.during or self.exit)


@dataclass(frozen=True)
class Block:
    """A part that is drawn as one box, or a stack of boxes that are the same.

    - `kind`: its colour goes by it; one of `THIN` is thin.
    - `title` and `words`: what it is; `name`: its attribute.
    - `parameters`: of one of the `times` that it stands for, the fewest and the most.
    - `paths`: of the parts that it stands for.
    """

    kind: str
    title: str
    words: str = ""
    name: str = ""
    parameters: tuple[int, int] = (0, 0)
    times: int = 1
    paths: tuple[str, ...] = ()
    marks: Marks = Marks()

    @property
    def count(self) -> str:
        """`41.94 M`, `1.049 M–2.097 M`; nothing where there are none."""
        low, high = self.parameters
        if not high:
            return ""
        return short(low) if low == high else f"{short(low)}–{short(high)}"

    @property
    def about(self) -> str:
        """What a reader is told who points at it."""
        said = [", ".join(filter(None, (self.title, self.words)))]
        low, high = self.parameters
        if high:
            number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            said.append(f"{number} parameters{' each' if self.times > 1 else ''}")
        shown = clean(", ".join(self.paths[:3])) + (", …" if len(self.paths) > 3 else "")
        if len(shown) > _LONGEST:
            shown = f"{shown[:_LONGEST]}…"
        return "\n".join(filter(None, (shown, *said)))


@dataclass(frozen=True)
class Link:
    """What flows between two children of a frame, by their places in it, or `INSIDE`.

    `residual`: it goes round and is added to what its target gives. `label`: drawn beside it.
    """

    source: int
    target: int
    label: str = ""
    residual: bool = False


@dataclass(frozen=True)
class Frame(Block):
    """A part that is drawn with what is in it. `kind` "model" has no box: it is the drawing."""

    children: tuple[Block, ...] = ()
    links: tuple[Link, ...] = ()

    def walk(self) -> Iterator[Block]:
        """Itself and all below."""
        yield self
        for child in self.children:
            if isinstance(child, Frame):
                yield from child.walk()
            else:
                yield child
