"""A stack of layers that are not all the same, by its pattern: 26 layers as 4 × (5 A, B), 2 A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ..architecture.tree import Part, indices_text
from .segment import shortened
from .svg_alike import joined, shape
from .svg_items import INSIDE, Block, Frame, Link
from .svg_pattern import Term, terms
from .svg_text import clean

_KINDS = 6  # drawings of layers in one stack
_SEQUENCE = 12  # layers, none like another, that are drawn one after another
_BEGINNING = 24  # layers whose kinds are listed where there is no pattern
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def stack(parts: Sequence[Part], made: Sequence[Block], prefix: str) -> Block:
    """Unlike layers of one list: their pattern, each kind drawn where it stands."""
    first = {index: kind for kind, part in enumerate(parts) for index in part.indices}
    order = [first[index] for index in sorted(first)]
    kinds, drawn = list(order), [replace(block, times=1) for block in made]
    pattern = terms(kinds)
    if _drawn(pattern) > _KINDS:  # those that differ in numbers alone are one
        alike: dict[object, list[Block]] = {}
        for block in drawn:
            alike.setdefault(shape(block), []).append(block)
        places_of = {like: place for place, like in enumerate(alike)}
        kinds = [places_of[shape(drawn[kind])] for kind in order]
        drawn = [joined(blocks) for blocks in alike.values()]
        pattern = terms(kinds)
    places = indices_text(tuple(sorted(first)))
    name = clean(prefix + shortened(f"{parts[0].name}[{places}]"))
    letters = [_LETTERS[i % 26] + (str(i // 26) if i >= 26 else "") for i in range(len(drawn))]
    paths = tuple(path for block in made for path in block.paths)
    total = sum(block.parameters[0] * part.times for block, part in zip(made, parts, strict=True))
    whole = Frame(
        "stack", f"{len(order):,} layers", name=name, parameters=(total, total), paths=paths
    )
    if len(drawn) == 1:
        return replace(drawn[0], times=len(order), name=name)
    if len(set(kinds)) == len(kinds) <= _SEQUENCE:  # an nn.Sequential, say
        title = clean(prefix + parts[0].name)
        return replace(whole, title=title, children=tuple(drawn), links=_chain(len(drawn)))
    titled = [
        replace(block, title=f"{letter}  {block.title}")
        for letter, block in zip(letters, drawn, strict=True)
    ]
    if _drawn(pattern) > _KINDS:
        return _unordered(whole, titled, kinds, letters)
    return _patterned(whole, titled, pattern, letters)


def _drawn(pattern: Sequence[Term]) -> int:
    return sum(len(term.runs) for term in pattern)


def _patterned(
    whole: Frame, drawn: Sequence[Block], pattern: Sequence[Term], letters: Sequence[str]
) -> Frame:
    children: list[Block] = []
    met: set[int] = set()
    for term in pattern:
        inside: list[Block] = []
        for kind, count in term.runs:
            block = replace(drawn[kind], times=count)
            inside.append(_again(block) if kind in met else block)
            met.add(kind)
        if term.times == 1:
            children += inside
        else:
            title = _text([replace(term, times=1)], letters)
            chain = _chain(len(inside))
            children.append(
                Frame("period", title, times=term.times, children=tuple(inside), links=chain)
            )
    if len(children) == 1:  # the period is the stack
        only = children[0]
        assert isinstance(only, Frame)
        return replace(only, kind="stack", name=whole.name, paths=whole.paths)
    return replace(
        whole,
        words=_text(pattern, letters),
        children=tuple(children),
        links=_chain(len(children)),
    )


def _unordered(
    whole: Frame, drawn: Sequence[Block], kinds: Sequence[int], letters: Sequence[str]
) -> Frame:
    """No pattern that a reader would see: the kinds that occur most, each once, without arrows."""
    often = sorted(range(len(drawn)), key=lambda kind: (-kinds.count(kind), kind))
    shown = sorted(often[:_KINDS])
    children = [replace(drawn[kind], times=kinds.count(kind)) for kind in shown]
    left = len(kinds) - sum(kinds.count(kind) for kind in shown)
    if left:
        more = Block("more", f"… {left:,} layers", f"of {len(drawn) - len(shown):,} more kinds")
        children.append(more)
    begins = " ".join(letters[kind] for kind in kinds[:_BEGINNING])
    return replace(
        whole,
        words=f"{begins}{' …' if len(kinds) > _BEGINNING else ''}",
        children=tuple(children),
    )


def _again(block: Block) -> Block:
    """A kind of layer that was drawn before."""
    return Block(block.kind, block.title, "as above", times=block.times, paths=block.paths)


def _text(pattern: Sequence[Term], letters: Sequence[str]) -> str:
    """`5 A, B` as `A A A A A B`; terms `4 × (5 A, B), 2 A`."""
    said = []
    for term in pattern:
        runs = ", ".join(f"{n} {letters[k]}" if n > 1 else letters[k] for k, n in term.runs)
        said.append(f"{term.times} × ({runs})" if term.times > 1 else runs)
    return ", ".join(said)


def _chain(count: int) -> tuple[Link, ...]:
    """From the input through each to the output."""
    ends = [INSIDE, *range(count), INSIDE]
    return tuple(Link(a, b) for a, b in pairwise(ends))
