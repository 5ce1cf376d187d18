"""One fact that changed, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..architecture.difference import FactChange
from ..architecture.tree import Value
from ..architecture.words import number, phrase
from .phrase import Phrase


def fact_phrases(kind: str, fact: FactChange) -> Iterator[Phrase]:
    """The phrases of a fact of a part of a kind: one, but of rotary positions one for each thing
    that differs.
    """
    if fact.name == "layers":
        yield Phrase(count_layers(fact.before), count_layers(fact.after))
    elif fact.name == "name":
        yield Phrase(f"called {fact.before}", f"called {fact.after}")
    elif fact.name == "places":
        yield Phrase(f"at {fact.before}", f"at {fact.after}")
    elif fact.name.startswith("weight "):
        yield _weight(fact)
    elif isinstance(fact.before, tuple) and isinstance(fact.after, tuple) and fact.name == "rotary":
        yield from _rotary(_pairs(fact.before), _pairs(fact.after))
    else:
        yield Phrase(phrase(kind, fact.name, fact.before), phrase(kind, fact.name, fact.after))


def count_layers(count: Value) -> str:
    """`1 layer`, `32 layers`."""
    return f"{count} layer{'s' if count != 1 else ''}"


def _weight(fact: FactChange) -> Phrase:
    _, _, name = fact.name.partition(" ")
    if fact.before is None or fact.after is None:
        known = name in ("weight", "bias")  # a norm's
        there = name if known else f"weight {name} of {_shape(fact.before or fact.after)}"
        none = f"no {name}" if known else f"no weight {name}"
        return Phrase(none, there) if fact.before is None else Phrase(there, none)
    return Phrase(f"weight {name} {_shape(fact.before)}", f"weight {name} {_shape(fact.after)}")


def _shape(value: Value) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _pairs(value: tuple[object, ...]) -> dict[str, str]:
    """Of rotary positions: `base=10000.0`, `scaling=yarn`, `factor=32.0`."""
    return dict(str(text).split("=", 1) for text in value)


def _rotary(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Phrase]:
    makers = (_base, _channels, _order, _scaling)
    for maker in makers:
        if maker(before) != maker(after):
            yield Phrase(maker(before), maker(after))


def _base(rotary: Mapping[str, str]) -> str:
    return f"rotary base {_number(rotary['base'])}" if "base" in rotary else "rotary base unknown"


def _channels(rotary: Mapping[str, str]) -> str:
    return f"rotary on {rotary['dim']} channels" if "dim" in rotary else "rotary on all channels"


def _order(rotary: Mapping[str, str]) -> str:
    return f"rotary pairs {rotary.get('pairs', 'half and half')}"


def _scaling(rotary: Mapping[str, str]) -> str:
    if "scaling" not in rotary:
        return "no rotary scaling"
    of_others = ("base", "dim", "pairs", "scaling")
    details = [
        f"{name.replace('_', ' ')} {_number(value)}"
        for name, value in rotary.items()
        if name not in of_others
    ]
    return f"{rotary['scaling']} scaling" + (f" ({', '.join(details)})" if details else "")


def _number(text: str) -> str:
    try:
        return number(float(text))
    except ValueError:
        return text
