"""What is said of a part, and of how it changed: each fact once, in the words of the field."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..architecture.difference import Change, FactChange
from ..architecture.tree import Part
from ..architecture.words import HEADLINE, headline, whole_words, words
from .fact_phrases import count_layers, fact_phrases
from .phrase import Phrase

# Of a forward that differs, though its steps read the same.
_UNSEEN = "forward: differs in what its steps do not show (an attribute, a buffer)"


def phrases_of(change: Change, leave_out: Collection[str] = ()) -> tuple[Phrase, ...]:
    """What differs at a part itself; nothing where it is the same.

    `leave_out`: names of facts that are said elsewhere.
    """
    before, after = change.before, change.after
    if before is None or after is None:
        return (Phrase(*(_whole(part) if part else None for part in (before, after))),)
    if change.kind == "replaced":
        return (_replaced(_whole(before), _whole(after)),)
    facts = [f for f in change.facts if f.name not in leave_out and f.name != "forward"]
    found = tuple(_of_facts(before, after, facts))
    forward = {fact.name for fact in change.facts} & {"forward"} - {*leave_out}
    if change.steps and "forward" not in leave_out:
        return (*found, Phrase(None, _steps(change.steps)))
    return (*found, Phrase(None, _UNSEEN)) if forward else found


def steps_shown(change: Change, leave_out: Collection[str] = ()) -> bool:
    """Whether the steps that differ stand below a part: a layer's say how its parts are joined, and
    another's stand there where nothing else says how it differs.
    """
    if not change.steps or "forward" in leave_out:
        return False
    if change.after is not None and change.after.kind == "layer":
        return True
    children = {child.kind for child in change.children}
    return children.isdisjoint(("added", "removed", "replaced")) and all(
        fact.name == "forward" or fact.name in leave_out for fact in change.facts
    )


def layers_phrase(before: int, after: int) -> Phrase:
    """How many layers there were and are."""
    first, second = count_layers(before), count_layers(after)
    return Phrase(None if first == second else first, second)


def said(part: Part) -> str:
    """The words of a part, its class's name where there are none."""
    return words(part) or part.label


def _whole(part: Part) -> str:
    """The words of a part, or of the only one that it holds."""
    if not words(part) and len(part.children) == 1 and not part.children[0].indices:
        return _whole(part.children[0])
    return whole_words(part) or part.label


def _replaced(before: str, after: str) -> Phrase:
    """A part for one of another kind, without what is said of both."""
    first, second = (side.replace(" → ", " to ").split(", ") for side in (before, after))
    was = ", ".join(text for text in first if text not in second)
    now = ", ".join(text for text in second if text not in first)
    return Phrase(was or None, now or None) if was or now else Phrase(before, after)


def _of_facts(before: Part, after: Part, facts: list[FactChange]) -> Iterator[Phrase]:
    first = set(HEADLINE.get(before.kind, ())) | set(HEADLINE.get(after.kind, ()))
    # Of a linear layer it has an arrow; there is one more between before and after.
    heads = [headline(part).replace(" → ", " to ") for part in (before, after)]
    headed = {fact.name for fact in facts} & first if heads[0] != heads[1] else set()
    if any("None" in head.split() for head in heads):
        headed = set()  # a fact that a headline needs is not known: each by itself
    if headed:
        yield Phrase(*heads)
    for fact in facts:
        if fact.name not in headed:
            yield from fact_phrases(before.kind, fact)


def _steps(steps: tuple[str, ...]) -> str:
    """`forward: +1 -2 steps`."""
    added, removed = (sum(step.startswith(sign) for step in steps) for sign in "+-")
    counts = [f"{sign}{count}" for sign, count in (("+", added), ("-", removed)) if count]
    return f"forward: {' '.join(counts)} step{'s' if added + removed != 1 else ''}"
