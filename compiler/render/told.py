"""What a difference need not say again on every line below: facts that follow from others.

Where a model's width goes from 4096 to 8192, every norm and every linear layer differs. The width
is said once; a size is left out where one formula of what stands above it gives the size before
and the size after. So is how a parameter starts, where the first of the model says that it starts
otherwise, or where there was no such parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..architecture.difference import Change, Difference, FactChange
from ..architecture.words import HEADLINE
from .plumbing import same_stream
from .sizes import Facts, dimensions, size_follows

# Facts of a kind that follow from what is above; the width of an MLP follows from nothing.
_SIZES = {
    "norm": ("size",),
    "router": ("topk",),
    "router part": ("topk",),
    "linear": ("experts", "in", "out"),
    "embedding": ("size", "vocabulary"),
    "output": ("size", "vocabulary", "in", "out"),
}
_BY_DEPTH = ("/√(2·layers)", "/√layers")

Law = tuple[str, str]


@dataclass(frozen=True)
class Told:
    """What stands above a part: facts, of the nearest where several have one, before and after.

    `law`: how the first parameter that starts otherwise started and starts, `law_path` where, and
    `law_parts` how many other parts have one that does so too.
    """

    before: Facts
    after: Facts
    law: Law | None = None
    law_path: str = ""
    law_parts: int = 0

    @staticmethod
    def of(difference: Difference) -> Told:
        """Above the root."""
        laws = [(c.path, _law(f)) for c in difference.root.walk() for f in _laws(c)]
        if not laws:
            return Told({}, {})
        path, law = laws[0]
        parts = {other for other, same in laws if same == law} - {path}
        return Told({}, {}, law, path, len(parts))

    def below(self, change: Change) -> Told:
        """For the children of a part."""
        if change.before is None or change.after is None:
            return self
        return replace(
            self,
            before={**self.before, **dict(change.before.facts)},
            after={**self.after, **dict(change.after.facts)},
        )

    def explained(self, change: Change) -> frozenset[str]:
        """The names of the facts of a change that follow from what stands above, or from another
        of its facts.
        """
        if change.before is None or change.after is None:
            return frozenset()
        found = restated(change)
        for fact in change.facts:
            if self._follows(change, fact):
                found |= {fact.name}
        return found | self._of_experts(change)

    def _of_experts(self, change: Change) -> frozenset[str]:
        """Of experts, all that is said where their number is: what each of them is."""
        both = [part for part in (change.before, change.after) if part and part.fact("experts")]
        above = [facts for facts in (self.before, self.after) if "topk" in facts]
        if len(both) < 2 or len(above) < 2 or both[1].kind != "mlp":
            return frozenset()
        return frozenset({fact.name for fact in change.facts} & {*HEADLINE["mlp"]})

    def explain(self, change: Change) -> bool:
        """Whether a part differs in nothing but what follows from what stands above."""
        return (
            change.kind == "changed"
            and bool(change.facts)
            and len(self.explained(change)) == len(change.facts)
        )

    def law_of_others(self, change: Change) -> str:
        """Where a part is the first that starts otherwise: how many others do so; else nothing."""
        if change.path != self.law_path or not self.law_parts:
            return ""
        parts = "part does" if self.law_parts == 1 else "parts do"
        return f"{self.law_parts} other {parts} so too"

    def only_sizes(self, change: Change) -> bool:
        """Whether a part differs in sizes alone that follow from what stands above."""
        return self.explain(change) and not change.steps and not any(map(_is_law, change.facts))

    def _follows(self, change: Change, fact: FactChange) -> bool:
        kind = change.after.kind if change.after else ""
        if fact.name == "forward":
            return _handed_through(change)
        if _is_law(fact):
            law = _law(fact)
            return law is not None and law == self.law and change.path != self.law_path
        if _is_weight(fact):
            return _sizes_follow(self.below(change), fact)
        return fact.name in _SIZES.get(kind, ()) and _sizes_follow(self, fact)


def _handed_through(change: Change) -> bool:
    """Whether forwards differ in what they hand to children, which differ themselves."""
    if change.before is None or change.after is None or all(c.empty for c in change.children):
        return False
    return bool(change.steps) and same_stream(change.before, change.after)


def restated(change: Change) -> frozenset[str]:
    """The names of the facts of a change that others of its facts say: the size of a weight, a bias
    that is a fact and a weight, how a parameter starts that was not there.
    """
    own = Told({}, {}).below(change)
    names = {fact.name for fact in change.facts}
    weights = {f.name for f in change.facts if _is_weight(f) and _said(own, f, names)}
    there = {f.name.partition(" ")[2] for f in change.facts if _is_weight(f) and _one_sided(f)}
    laws = {
        f.name
        for f in change.facts
        if _is_law(f) and ("tied" in names or (f.name.partition(" ")[2] or "weight") in there)
    }
    return frozenset(weights | laws)


def _said(own: Told, weight: FactChange, names: Collection[str]) -> bool:
    """Whether other facts say how a weight changed."""
    if weight.name.partition(" ")[2] in names:
        return True
    if _one_sided(weight):
        heads = {own.before.get("heads"), own.after.get("heads")}
        return "sinks" in names and set(dimensions(weight.before or weight.after)) <= heads
    return _sizes_follow(own, weight)


def _sizes_follow(told: Told, fact: FactChange) -> bool:
    before, after = dimensions(fact.before), dimensions(fact.after)
    return (
        bool(before)
        and len(before) == len(after)
        and all(
            size_follows(one, other, told.before, told.after)
            for one, other in zip(before, after, strict=True)
        )
    )


def _laws(change: Change) -> Iterator[FactChange]:
    """The facts of a change that say that a parameter of both models starts otherwise."""
    left_out = restated(change)
    for fact in change.facts:
        if _is_law(fact) and fact.name not in left_out and _law(fact) is not None:
            yield fact


def _law(fact: FactChange) -> Law | None:
    """Both laws, but for the division by the depth: a deeper layer's follows from the first's."""
    if not isinstance(fact.before, str) or not isinstance(fact.after, str):
        return None
    (before, depth_before), (after, depth_after) = map(_apart, (fact.before, fact.after))
    return (before, after) if depth_before == depth_after else None


def _apart(law: str) -> tuple[str, str]:
    """A law and what divides it by the depth."""
    by = next((end for end in _BY_DEPTH if law.endswith(end)), "")
    return law.removesuffix(by), by


def _is_law(fact: FactChange) -> bool:
    return fact.name == "init" or fact.name.startswith("init ")


def _is_weight(fact: FactChange) -> bool:
    return fact.name.startswith("weight ")


def _one_sided(fact: FactChange) -> bool:
    return (fact.before is None) != (fact.after is None)
