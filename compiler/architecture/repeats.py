"""Equal layers of a list as one part, patterned ones too."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import replace

from .tree import Part


def collapsed(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Layers of one list that are equal become one, which stands where the first of them stood."""
    found: dict[Hashable, Part] = {}
    for number, part in enumerate(parts):
        key: Hashable = (part.name, content(part)) if part.indices else number
        known = found.get(key)
        if known is None:
            found[key] = part
        else:
            found[key] = replace(known, indices=known.indices + part.indices)
    return tuple(found.values())


def content(part: Part) -> str:
    """A digest of all that counts of a part and below it, its own name and place left out.

    A part's children count with their names; the names of classes do not.
    """
    known = part.__dict__.get("_content")
    if known is None:
        below = [(c.name, c.indices, content(c)) for c in part.children]
        of = (part.kind, part.facts, part.weights, part.operations, part.exact, below)
        known = hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest()
        part.__dict__["_content"] = known  # parts do not change
    return str(known)
