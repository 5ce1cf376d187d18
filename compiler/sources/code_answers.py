"""Answers for the lines of what was folded: classes, methods, copied functions, properties."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ..pipeline import Translated
from ..stage_guards import STAGE_WORDS
from .answer import Answer, Because, FieldFact, Place
from .code_map import Origin, Part, Places, code_map
from .decided import Decisions
from .field_facts import FieldFacts
from .heads import documented, why_built, why_class, why_parameters
from .shown import place
from .statements import Statement, Statements, first_line, statements_of

Written = tuple[str, Statement, list[int]]  # a file, a statement of it, and lines to look at

_CONFIG_READ = re.compile(r"\bconfig\.(\w+)")
_NOTE = re.compile(r"\s*\[if .*\]\s*$")


class CodeAnswers:
    """The answers for one compile; `body` is its text."""

    def __init__(self, traced: Translated, body: Statements, fields: FieldFacts) -> None:
        self._traced, self._body, self._fields = traced, body, fields
        self.places = Places(traced.facts)
        self._decisions = Decisions(traced, self.places, fields)
        self._parts = code_map(traced, body, self.places)

    def part(self, line: int) -> Part | None:
        """The innermost part that a line of the page belongs to."""
        around = [p for p in self._parts if p.first <= line <= p.last]
        return min(around, key=lambda p: p.last - p.first, default=None)

    def answer(self, line: int, part: Part) -> Answer:
        """Where a line of a part comes from."""
        text = self._body.lines[line - 1]
        if not text.strip() and line not in self._docstring(line):
            return Answer(line, text, "layout", notes=("a blank line, which the formatter put",))
        found = self._statements(line, part)
        if line in self._docstring(line):
            found = self._documented(line, part) or found
        if not found:
            found = self._of_its_statement(line, part)
        places = tuple(self._place(path, s, marked) for path, s, marked in found)
        reasons = [self._noted(place, part) for place in places if _NOTE.search(place.shown[-1][1])]
        for path, statement, _ in found:
            reasons += self._why(path, statement, part)
        reasons += self._aliases(text, found)
        reasons += _put_for_stages(text, places)
        reads = self._reads(text, part)
        return Answer(line, text, "code", places, tuple(dict.fromkeys(reasons)), reads)

    # ---------------------------------------------------------------- which statements

    def _statements(self, line: int, part: Part) -> list[Written]:
        """The statements that the words of a line are of, that of its first word first."""
        origins = part.on(line)
        found = _grouped(origins)
        comments = part.comments_on(line)
        if comments and (known := found or self._of_its_statement(line, part)):
            path, statement, marked = known[0]
            at = _comment_line(statements_of(path), statement, comments)
            if at is not None:
                return [(path, statement, [*marked, at] if found else [at]), *found[1:]]
        return found

    def _of_its_statement(self, line: int, part: Part) -> list[Written]:
        """For a line of brackets or of words that folding wrote: the statement that it is part of,
        or else what stands around it.
        """
        here = self._body.at(line)
        first, last = here.first, max(here.last, line)
        for lines in (range(first, last + 1), range(line, part.first - 1, -1)):
            near = sorted(lines, key=lambda n: (abs(n - line), n))
            for other in near:
                found = _grouped(part.on(other))
                if found:
                    path, statement, _ = found[0]
                    closes = self._body.lines[line - 1].strip().strip(")]},:") == ""
                    return [(path, statement, [statement.last if closes else statement.first])]
        return []

    def _docstring(self, line: int) -> range:
        statement = self._body.at(line)
        lines = documented(statement.function)
        return lines if line in lines else range(0)

    def _documented(self, line: int, part: Part) -> list[Written]:
        """The line of the author's docstring that a line of the page's is."""
        definition = self._body.at(line).function
        if definition is None:
            return []
        head = self._statements(definition.lineno, part)
        if not head:
            return []
        path, statement, _ = head[0]
        source = statements_of(path)
        lines = documented(statement.function)
        if not lines:
            return []
        docstring = source.at(lines[0])
        own = documented(definition)
        if len(own) > 1 and line == own[-1]:
            return [(path, docstring, [lines[-1]])]
        words = self._words(line)
        same = [n for n in lines if _without_note(source.lines[n - 1]) == words]
        # Of lines that say the same (blank ones), the one that as many stand above.
        above = sum(self._words(n) == words for n in own if n < line)
        return [(path, docstring, [same[min(above, len(same) - 1)] if same else lines[0]])]

    def _words(self, line: int) -> str:
        return self._body.lines[line - 1].strip().strip("\"'")

    def _place(self, path: str, statement: Statement, marked: Iterable[int]) -> Place:
        lines = statements_of(path).lines
        numbers = list(marked)
        first = min([statement.first, *numbers])
        return place(path, lines, first, statement.last, statement.inside, numbers)

    # ---------------------------------------------------------------- why

    def _why(self, path: str, statement: Statement, part: Part) -> list[Because]:
        reasons: list[Because] = []
        kind = part.kind
        if kind is not None and isinstance(statement.node, ast.ClassDef):
            return list(why_class(self._traced, kind))
        if kind is not None and isinstance(statement.node, ast.FunctionDef):
            reasons += why_parameters(self._traced, kind, statement.node.name)
        elif kind is not None:
            reasons += why_built(self._traced, kind, path, statement.first, statement.last)
        left = {
            o.line
            for p in self._parts
            if p.kind is kind
            for _, o in p.words
            if o and o.file.path == path
        }
        source = statements_of(path)
        return reasons + self._decisions.about(path, statement, source, part, left)

    def _noted(self, place: Place, part: Part) -> Because:
        """Why words stand that end in `[if test]` where they were written."""
        number, text = place.shown[-1]
        test = text[text.rindex("[if ") + len("[if ") : text.rindex("]")]
        known = self._fields.names(part.config)
        names = [n for n in dict.fromkeys(_CONFIG_READ.findall(test)) if n in known]
        fields = tuple(self._fields.named(n, part.config) for n in names)
        return Because(f"`[if {test}]` holds", f"{place.file}:{number}", fields)

    def _aliases(self, text: str, found: list[Written]) -> Iterable[Because]:
        """Fields on a line that stand for a property of the config, which comes to them."""
        for name, field in self._traced.page_config.aliases.items():
            read = re.compile(rf"\.{name}\b")
            if re.search(rf"\.{field}\b", text) and any(
                read.search(statements_of(path).lines[n - 1])
                for path, _, marked in found
                for n in marked
            ):
                yield Because(f"`{name}` of this config is its `{field}`")

    def _reads(self, text: str, part: Part) -> tuple[FieldFact, ...]:
        """The fields that a line of the page reads of `config`, or of `self` in a property."""
        names = _CONFIG_READ.findall(text)
        if part.kind is None and "." in part.name:
            names += re.findall(r"\bself\.(\w+)", text)
        known = self._fields.names(part.config)
        return tuple(self._fields.named(n, part.config) for n in dict.fromkeys(names) if n in known)


def _grouped(origins: Iterable[Origin]) -> list[Written]:
    found: dict[tuple[str, int], Written] = {}
    for origin in origins:
        path = origin.file.path
        statement = statements_of(path).at(origin.line)
        entry = found.setdefault((path, id(statement.node)), (path, statement, []))
        entry[2].append(origin.line)
    return list(found.values())


def _comment_line(source: Statements, statement: Statement, comments: list[str]) -> int | None:
    """The line of a comment that stands on the page without its `[if ...]`."""
    function = statement.function
    first = first_line(function) if function is not None else 1
    last = (function.end_lineno if function is not None else None) or len(source.lines)
    words = {comment.lstrip("# ").strip() for comment in comments}
    for number in range(first, last + 1):
        text = source.lines[number - 1]
        if "#" in text and _without_note(text[text.index("#") :]).lstrip("# ") in words:
            return number
    return None


def _put_for_stages(text: str, places: Iterable[Place]) -> list[Because]:
    """Why a word of a pipeline's is on the line where the author has written none."""
    words = [word for word in STAGE_WORDS if re.search(rf"\b{word}\b", text)]
    shown = "\n".join(line for place in places for _, line in place.shown)
    if all(re.search(rf"\b{word}\b", shown) for word in words):
        return []
    return [
        Because(
            f"{' and '.join(f'`{word}`' for word in words)}: put there for a pipeline, whose first "
            "stage runs what comes before the layers and whose last what comes after"
        )
    ]


def _without_note(line: str) -> str:
    return _NOTE.sub("", line).strip().strip("\"'")
