"""`specc why PAGE:LINE`: which line of which file a line of a page comes from, and why it is so.

The page holds no map. Its header says what it comes from: that is compiled again, and the map is
made of this compile. Where the page's text is not what comes out, its lines are matched.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from pathlib import Path
from typing import NoReturn

from ..diagnostics import fail, shown_path
from ..generate import trace
from ..header import Header, digest, split_page
from ..pipeline import Translated
from ..target import recorded_target, refuse_missing
from ..write import read_page
from .answer import Answer, Because, Explained
from .code_answers import CodeAnswers
from .field_facts import FieldFacts
from .page_answers import PageAnswers
from .statements import Statements, lines_of


def parse_lines(text: str) -> tuple[str, int, int]:
    """`PAGE:LINE` or `PAGE:LINE-LINE`. Raises `SpecError`: SP665 for any other form."""
    match = re.fullmatch(r"(.+?):(\d+)(?:-(\d+))?", text, re.DOTALL)
    if match is None:
        _no_line(f"`{text}` names no line of a page")
    return match[1], int(match[2]), int(match[3] or match[2])


def explain(page: Path, first: int, last: int) -> Explained:
    """The answers for lines `first` to `last` of a page, counted from 1, header included.

    Raises `SpecError`: SP665 where the page has no such lines, SP666 where it has no header, SP604
    where its spec is gone, SP611 where there is no page; and what compiling the spec raises.
    """
    if not page.is_file():
        refuse_missing(page)
    text = read_page(page)
    lines = lines_of(text)
    if not 1 <= first <= last <= len(lines):
        asked = f"{first}-{last}" if last != first else f"{first}"
        _no_line(f"`{shown_path(page)}` has lines 1 to {len(lines)}, and {asked} is asked for")
    parsed = split_page(text)
    if parsed is None:
        fail(
            "SP666",
            f"`{shown_path(page)}` has no header, so it is not known which spec it comes from",
            help="only a page as `specc compile` wrote it can be explained, edited or not",
        )
    header, body = parsed
    target = recorded_target(header.origin, page)
    above = len(lines) - len(lines_of(body))
    explainer = Explainer(trace(target, header.overrides), header.overrides)
    against = _Asked(page, header, body, above, explainer)
    answers = [
        _header_answer(n, lines[n - 1], header) if n <= above else against.answer(n - above)
        for n in range(first, last + 1)
    ]
    return Explained(shown_path(page), tuple(answers), against.notes)


def _no_line(message: str) -> NoReturn:
    fail("SP665", message, help="give PAGE:LINE or PAGE:FIRST-LAST, as `llama.py:88`")


class Explainer:
    """The answers for every line of what a spec compiles to now."""

    def __init__(self, traced: Translated, overrides: tuple[str, ...] = ()) -> None:
        self.text = traced.compiled.body
        body = Statements(self.text)
        fields = FieldFacts(traced, overrides)
        self._code = CodeAnswers(traced, body, fields)
        self.page = PageAnswers(traced, body, fields, self._code.places)

    @functools.cached_property
    def lines(self) -> list[str]:
        return lines_of(self.text)

    def answer(self, line: int) -> Answer:
        """Where a line of the compiled body comes from; it counts from 1."""
        part = self._code.part(line)
        return self.page.answer(line) if part is None else self._code.answer(line, part)


class _Asked:
    """A page's body, which stands `above` lines further down, against what its spec compiles to
    now."""

    def __init__(
        self, page: Path, header: Header, body: str, above: int, explainer: Explainer
    ) -> None:
        self._explainer, self._above = explainer, above
        self._lines = lines_of(body)
        new = explainer.lines
        matcher = difflib.SequenceMatcher(None, self._lines, new, autojunk=False)
        self._same: dict[int, int] = {}
        for a, b, size in matcher.get_matching_blocks():
            self._same.update({a + step + 1: b + step + 1 for step in range(size)})
        there = {compiled: line + above for line, compiled in self._same.items()}
        explainer.page.on_page = there.get
        self._instead: dict[int, tuple[int, int]] = {}
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "replace":
                self._instead.update(dict.fromkeys(range(a + 1, b + 1), (c + 1, d)))
        self._edited = digest(body) != header.body
        self._stale = digest(explainer.text) != header.body
        self.notes = tuple(self._told(shown_path(page)))

    def _told(self, page: str) -> list[str]:
        notes = []
        if self._stale and self._explainer.lines != self._lines:
            notes.append(
                f"`{page}` is stale: its spec, specc or the formatter changed since it was "
                "compiled; what follows is as of now"
            )
        if self._edited and self._explainer.lines != self._lines:
            notes.append(f"`{page}` was edited by hand since it was compiled")
        return notes

    def answer(self, line: int) -> Answer:
        """The answer for a line of the page's body."""
        known = self._same.get(line)
        if known is not None:
            found = self._explainer.answer(known)
            return dataclasses.replace(found, line=line + self._above)
        return self._by_hand(line)

    def _by_hand(self, line: int) -> Answer:
        at, text = line + self._above, self._lines[line - 1]
        if self._edited and not self._stale:
            notes = ["not the compiler's: this line was written by hand"]
        elif self._edited:
            notes = ["not what the spec compiles to now: written by hand, or from before"]
        else:
            notes = ["not what the spec compiles to any more"]
        first, last = self._instead.get(line, (0, 0))
        if first:
            shown = [text.strip() for text in self._explainer.lines[first - 1 : last]][:3]
            notes += [f"in its place the compiler writes `{each}`" for each in shown if each]
        near = self._nearest(line)
        if near is None:
            return Answer(at, text, "hand", notes=tuple(notes))
        found = self._explainer.answer(self._same[near])
        notes.append(f"the nearest compiled line is {near + self._above}, `{found.text.strip()}`")
        return Answer(at, text, "hand", found.places, notes=tuple(notes))

    def _nearest(self, line: int) -> int | None:
        """The nearest line that is the compiler's and says something; the one above if both are
        near.
        """
        told = [n for n in self._same if self._lines[n - 1].strip()]
        return min(told, key=lambda n: (abs(n - line), n), default=None)


def _header_answer(line: int, text: str, header: Header) -> Answer:
    origin = Because(f"compiled from `{header.origin}`")
    settings = [Because(f"with --set {each}") for each in header.overrides]
    if text.startswith("# spec "):
        note = "hashes of the spec, of the library, of what follows: `specc check` compares them"
        return Answer(line, text, "page", notes=(note,))
    if text.startswith("# code of its author"):
        note = "classes and functions on the page that are not specc's"
        return Answer(line, text, "page", notes=(note,))
    return Answer(line, text, "page", because=(origin, *settings), notes=("the page's header",))
