"""Which child before is which child after: by name, then by kind and content, in order.

Every rule reads the same from either side, so a reversed comparison pairs the same parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from .repeats import content
from .tree import Part

Pair = tuple[Part | None, Part | None]

# A part of these kinds that is the only one left on either side is the same one, renamed.
_SINGLE = {"attention", "mixer", "mlp", "layer", "embedding", "output"}


def align(before: Sequence[Part], after: Sequence[Part]) -> list[Pair]:
    """The children of two parts in pairs, in the order of `after`; what was removed stands where it
    stood."""
    pairs = [*_alone(before, after), *_lists(before, after)]
    return _ordered(pairs, before, after)


def _alone(before: Sequence[Part], after: Sequence[Part]) -> Iterator[Pair]:
    """Parts that stand in no list."""
    left = [p for p in before if not p.indices]
    right = [p for p in after if not p.indices]
    for key in (_name, _content, _single, _holder):
        yield from _paired(left, right, key)
    yield from ((part, None) for part in left)
    yield from ((None, part) for part in right)


def _name(part: Part) -> Hashable:
    return part.name


def _content(part: Part) -> Hashable:
    return part.kind, content(part)


def _single(part: Part) -> Hashable | None:
    return part.kind if part.kind in _SINGLE else None


def _holder(part: Part) -> Hashable | None:
    """Of a module that is no more than what it holds: the first thing in it that has a name."""
    if part.kind != "module":
        return None
    return next((one.kind for _, _, one in part.walk() if one.kind in _SINGLE), None)


def _paired(
    left: list[Part], right: list[Part], key: Callable[[Part], Hashable | None]
) -> Iterator[Pair]:
    """Pairs of equal key, the first of one side with the first of the other; taken off the lists.

    Where the key is a kind alone, it has to be the only one of its kind on both sides.
    """
    by_key: dict[Hashable, tuple[list[Part], list[Part]]] = defaultdict(lambda: ([], []))
    for side, parts in enumerate((left, right)):
        for part in parts:
            of = key(part)
            if of is not None:
                by_key[of][side].append(part)
    for ours, theirs in by_key.values():
        if key in (_single, _holder) and (len(ours), len(theirs)) != (1, 1):
            continue
        for one, other in zip(ours, theirs, strict=False):
            _take(left, one)
            _take(right, other)
            yield one, other


def _take(parts: list[Part], part: Part) -> None:
    """Takes a part off by identity: equal ones may be there."""
    del parts[next(n for n, p in enumerate(parts) if p is part)]


def _lists(before: Sequence[Part], after: Sequence[Part]) -> Iterator[Pair]:
    left, right = _by_list(before), _by_list(after)
    names = [name for name in left if name in right]
    only_left = [name for name in left if name not in right]
    only_right = [name for name in right if name not in left]
    renamed = list(zip(only_left, only_right, strict=False))
    for name, other in [*((n, n) for n in names), *renamed]:
        yield from _runs(left[name], right[other])
    for name in only_left[len(renamed) :]:
        yield from ((part, None) for part in left[name])
    for name in only_right[len(renamed) :]:
        yield from ((None, part) for part in right[name])


def _by_list(parts: Sequence[Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.indices:
            found[part.name].append(part)
    return dict(found)


def _runs(left: list[Part], right: list[Part]) -> Iterator[Pair]:
    """The layers of one list on either side."""
    if len(left) != 1 and len(right) != 1:
        left, right = list(left), list(right)
        yield from _paired(left, right, _content)
    if not left or not right:
        yield from ((part, None) for part in left)
        yield from ((None, part) for part in right)
    elif len(left) == len(right):
        yield from zip(left, right, strict=True)
    elif len(left) == 1:
        yield from _split(left[0], right)
    elif len(right) == 1:
        yield from ((other, one) for one, other in _split(right[0], left))
    else:
        yield from _overlapping(left, right)


def _split(whole: Part, parts: Sequence[Part]) -> Iterator[tuple[Part | None, Part]]:
    """Layers that are all the same, cut up as the other side's are; each piece with its part."""
    owner = {index: part for part in parts for index in part.indices}
    count = max(owner) + 1
    period = _period([id(owner.get(index)) for index in range(count)])
    pieces: dict[int, list[int]] = {id(part): [] for part in parts}
    for index in whole.indices:
        if index >= count:
            # Behind the end of the other list the pattern goes on, or its last part does.
            index_there = index % period if period <= count // 2 else count - 1
        else:
            index_there = index
        part = owner.get(index_there, parts[-1])
        pieces[id(part)].append(index)
    for part in parts:
        piece = tuple(pieces[id(part)])
        yield (replace(whole, indices=piece) if piece else None), part


def _period(values: Sequence[int]) -> int:
    """After how many values they repeat themselves."""
    for period in range(1, len(values)):
        if all(a == b for a, b in zip(values, values[period:], strict=False)):
            return period
    return len(values)


def _overlapping(left: list[Part], right: list[Part]) -> Iterator[Pair]:
    """Those that share the most places, the first of equals first; the rest stand alone."""
    shared = [
        (-len(set(p.indices) & set(q.indices)), n + m, n, m)
        for n, p in enumerate(left)
        for m, q in enumerate(right)
    ]
    # Of equals, those whose places add up to less; `min` and `max` make it read the same reversed.
    shared.sort(key=lambda s: (s[0], s[1], min(s[2:]), max(s[2:])))
    done: tuple[set[int], set[int]] = (set(), set())
    for overlap, _, n, m in shared:
        if overlap and n not in done[0] and m not in done[1]:
            done[0].add(n)
            done[1].add(m)
            yield left[n], right[m]
    yield from ((p, None) for n, p in enumerate(left) if n not in done[0])
    yield from ((None, q) for m, q in enumerate(right) if m not in done[1])


def _ordered(pairs: list[Pair], before: Sequence[Part], after: Sequence[Part]) -> list[Pair]:
    """By place after; a part that is gone comes behind the one that it stood behind."""
    place_before, place_after = _places(before), _places(after)
    reached: list[tuple[int, int]] = []  # places before, and after, of what is on both sides
    for one, other in pairs:
        if one is not None and other is not None:
            reached.append((place_before[_key(one)], place_after[_key(other)]))

    def place(pair: Pair) -> tuple[int, ...]:
        one, other = pair
        if other is not None:
            return place_after[_key(other)], 0, *other.indices[:1]
        assert one is not None
        own = place_before[_key(one)]
        behind = [after for before, after in reached if before < own]
        return max(behind, default=-1), 1, own, *one.indices[:1]

    return sorted(pairs, key=place)


def _places(parts: Sequence[Part]) -> dict[tuple[str, int], int]:
    """Where a part stands among its siblings, by its name and each place in its list."""
    return {
        (part.name, index): number
        for number, part in enumerate(parts)
        for index in part.indices or (-1,)
    }


def _key(part: Part) -> tuple[str, int]:
    return part.name, part.indices[0] if part.indices else -1
