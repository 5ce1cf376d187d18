"""Steps of a forward that only hand things through: what a difference need not show.

A decoder that makes rotary tables for its layers, an embedding that is given positions for its
dropout: the tables and the dropout are facts of the parts that use them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from ..architecture.tree import Part

_CALL = re.compile(r"(?<![\w.])(\w+)\(")
_BOUND = re.compile(r"(\s*)(\w+(?:, \w+)*) = (.*)")


def same_stream(before: Part, after: Part) -> bool:
    """Whether two forwards hand their children the same first arguments, and do the same besides.

    Other arguments of children do not count, nor do dropout that one side has, names of locals and
    locals that only these need.
    """
    left_out = _dropouts(before) ^ _dropouts(after)  # one that both call counts where it stands
    return _stream(before, left_out) == _stream(after, left_out)


def _dropouts(part: Part) -> set[str]:
    """The names of the dropouts that a forward calls."""
    names = {child.name for child in part.children if child.kind == "dropout"}
    return names & {call[1] for line in part.operations for call in _CALL.finditer(line)}


def _stream(part: Part, left_out: Collection[str]) -> tuple[str, ...]:
    children = {child.name: child.name in left_out for child in part.children}
    lines = [_simple(line, children) for line in part.operations]
    while (shorter := _without_locals(lines)) != lines:
        lines = shorter
    return tuple(_renamed(lines))


def _simple(text: str, children: dict[str, bool]) -> str:
    """An expression in which calls of children have one argument, and those of dropout are it."""
    found, start = "", 0
    for call in _CALL.finditer(text):
        if call.start() < start or call[1] not in children:
            continue
        first, end = _first_argument(text, call.end())
        first = _simple(first, children)
        found += text[start : call.start()]
        found += first if children[call[1]] else f"{call[1]}({first})"
        start = end
    return found + text[start:]


def _first_argument(text: str, start: int) -> tuple[str, int]:
    """The first argument of a call whose bracket ends before `start`, and where the call ends."""
    depth, first = 0, None
    for place in range(start, len(text)):
        letter = text[place]
        if letter == "," and depth == 0 and first is None:
            first = text[start:place]
        if letter in ")]}":
            if depth == 0:
                return text[start:place] if first is None else first, place + 1
            depth -= 1
        depth += letter in "([{"
    return text[start:], len(text)


def _without_locals(lines: Sequence[str]) -> list[str]:
    """Without one local that is not used, or used once, where it is put in its place."""
    uses = Counter(word for line in lines for word in re.findall(r"\w+", line))
    bounds = [_BOUND.fullmatch(line) for line in lines]
    bindings = Counter(bound[2] for bound in bounds if bound)
    for number, bound in enumerate(bounds):
        if bound is None or "," in bound[2]:
            continue
        name, value = bound[2], bound[3]
        rest = [*lines[:number], *lines[number + 1 :]]
        if uses[name] == bindings[name]:
            return rest
        used = re.compile(rf"(?<![\w.]){name}(?!\w)")
        if uses[name] == 2 and any(map(used.search, rest[number:])):
            return [*rest[:number], *(_put(used, value, line) for line in rest[number:])]
    return list(lines)


def _put(name: re.Pattern[str], value: str, line: str) -> str:
    """A line with a value for a name, in brackets where it is one operand of several."""
    start = re.match(r"\s*return |\s*[\w, ]+ = |", line)
    alone = start is not None and name.fullmatch(line[start.end() :])
    put = value if alone or not _has_operators(value) else f"({value})"
    return name.sub(lambda _: put, line)


def _has_operators(value: str) -> bool:
    """Whether there is a space outside of brackets."""
    depth = 0
    for letter in value:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == " " and depth == 0:
            return True
    return False


def _renamed(lines: Sequence[str]) -> list[str]:
    """With locals named by the order in which they are bound."""
    names: dict[str, str] = {}
    for line in lines:
        bound = _BOUND.fullmatch(line)
        for name in bound[2].split(", ") if bound else ():
            names.setdefault(name, f"_{len(names)}")
    return [re.sub(r"(?<![\w.])\w+", lambda word: names.get(word[0], word[0]), o) for o in lines]
