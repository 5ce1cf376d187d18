"""What `specc why` answers of a line, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Place:
    """A statement of a file that a person can open: `specc/templates/mlp.py`, or one of the user's.

    `first` and `last` are its lines, `inside` the class and function that it is in, or "". `shown`
    are the lines to look at, each with its number: those whose words are on the page.
    """

    file: str
    first: int
    last: int
    inside: str
    shown: tuple[tuple[int, str], ...]

    @property
    def line(self) -> int:
        return self.shown[0][0] if self.shown else self.first


@dataclass(frozen=True)
class FieldFact:
    """A field of the config, its value as source text, and where that comes from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True)
class Because:
    """One reason why a line stands as it does, with where it was decided and by which fields."""

    text: str
    at: str = ""  # FILE:LINE
    fields: tuple[FieldFact, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Where a line of a page comes from.

    `made_by`: "code" for a class or function that was folded (a template's or the user's), "page"
    for what lays a page out, "layout" for a blank line, "hand" for what the compiler did not write.
    The first place is the one that the line is, the others went into it.
    """

    line: int
    text: str
    made_by: Literal["code", "page", "layout", "hand"]
    places: tuple[Place, ...] = ()
    because: tuple[Because, ...] = ()
    reads: tuple[FieldFact, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explained:
    """The answers for some lines of a page, and what holds for all of them."""

    page: str
    answers: tuple[Answer, ...]
    notes: tuple[str, ...] = ()
