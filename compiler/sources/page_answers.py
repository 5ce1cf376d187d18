"""Answers for the lines that lay a page out: docstring, imports, Config, `build_model`."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

from specc.templates.config import TRAINER_FIELDS

from ..pipeline import Translated
from ..title import title_and_facts
from .answer import Answer, Because, Place
from .code_map import Places, code_of, config_number
from .field_facts import FieldFacts
from .shown import place, shown
from .statements import Statements

_WIDTH = 98  # of a fact on one line: page.j2
_FACT_FIELDS = re.compile(r'\bc\.(\w+)|"(\w+)" in (?:used|reads)')
_CONTROL = re.compile(r"\s*(\{%[^%]*%\}|\{#.*)?\s*")  # a line of the template without text
_MARK = "\x00"


class PageAnswers:
    """The answers for one compile; `body` is its text."""

    def __init__(
        self, traced: Translated, body: Statements, fields: FieldFacts, places: Places
    ) -> None:
        self._traced, self._body, self._fields, self._places = traced, body, fields, places
        self.on_page: Callable[[int], int | None] = lambda line: line  # of a line of `body`
        self._folder = Path(sys.modules["specc.templates"].__file__ or "").parent / "page"

    def answer(self, line: int) -> Answer:
        """Where a line of the page outside its classes comes from."""
        text = self._body.lines[line - 1]
        top = next(
            (s for s in self._body.tree.body if s.lineno <= line <= (s.end_lineno or 0)), None
        )
        decorated = next((s for s in self._body.tree.body if _decorated(s, line)), None)
        node = top or decorated
        if node is None:
            return Answer(line, text, "layout", notes=("a blank line between two parts",))
        if isinstance(node, ast.Expr):
            return self._docstring(line, text)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._import(line, text, node)
        if not text.strip() and not isinstance(node, ast.Expr):
            return Answer(line, text, "layout", notes=("a blank line, which the formatter put",))
        if isinstance(node, ast.ClassDef):
            return self._config(line, text, node)
        if isinstance(node, ast.FunctionDef):
            note = "how every page is built: the class in it is that of the spec's root"
            return self._laid_out(line, text, "def build_model(", note)
        note = "what the top class returns where labels are given, read from its forward"
        return self._laid_out(line, text, "LOSS = ", note)

    # ---------------------------------------------------------------- docstring

    def _docstring(self, line: int, text: str) -> Answer:
        words = text.strip().removeprefix('"""').removeprefix("- ").strip()
        for shown_words, numbers in self._facts:
            # A fact that is too long for a line stands on several.
            wrapped = len(shown_words) > _WIDTH and words in shown_words
            if words and (words == shown_words or wrapped):
                lines = self._template("facts.j2").splitlines()
                names = {a or b for n in numbers for a, b in _FACT_FIELDS.findall(lines[n - 1])}
                known = self._fields.names()
                reads = tuple(self._fields.named(n) for n in sorted(names & known))
                where = self._lines("facts.j2", numbers)
                note = "a fact of the model, from the fields that its text went by"
                return Answer(line, text, "page", where, (), reads, (note,))
        note = "what a page's title says of every model"
        if not words:
            return Answer(line, text, "page", notes=("a blank line of the title, or its end",))
        return self._laid_out(line, text, words[:40], note)

    @functools.cached_property
    def _facts(self) -> list[tuple[str, list[int]]]:
        """The title and the facts of the docstring, each with the lines of the template that wrote
        it: found by rendering the template with its lines marked.
        """
        marked = "\n".join(
            text if _CONTROL.fullmatch(text) else f"{text}{_MARK}{number}{_MARK}"
            for number, text in enumerate(self._template("facts.j2").split("\n"), 1)
        )
        t = self._traced
        title, facts = title_and_facts(t.residuals, t.names, t.facts, t.page_config, marked)
        pieces = [text.split(_MARK) for text in (title, *facts)]
        return [("".join(p[::2]).strip(), [int(n) for n in p[1::2]]) for p in pieces]

    # ---------------------------------------------------------------- imports

    def _import(self, line: int, text: str, node: ast.Import | ast.ImportFrom) -> Answer:
        on_line = [
            alias.asname or alias.name
            for alias in node.names
            if node.lineno == node.end_lineno or alias.lineno == line
        ]
        names = on_line or [alias.asname or alias.name for alias in node.names]
        reasons = [Because(self._read_by(name, self._readers(name))) for name in names]
        note = "imported because the page reads it" if len(names) == 1 else "what the page reads"
        return Answer(line, text, "page", (), tuple(reasons), (), (note,))

    def _readers(self, name: str) -> list[int]:
        first = name.partition(".")[0]
        found = {
            node.lineno
            for node in ast.walk(self._body.tree)
            if isinstance(node, ast.Name) and node.id == first
        }
        return sorted(found)

    # ---------------------------------------------------------------- Config

    def _config(self, line: int, text: str, node: ast.ClassDef) -> Answer:
        def here(item: ast.stmt) -> bool:
            return item.lineno <= line <= (item.end_lineno or 0)

        number = config_number(node.name, self._traced)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and here(item):
                return self._field(line, text, ast.unparse(item.target), number)
            if isinstance(item, ast.FunctionDef) and item.name == "__post_init__" and here(item):
                return self._assertion(line, text)
        note = "the fields that the page's text reads, of a config of the spec"
        config = self._traced.facts.kinds.configs[number]
        span = getattr(config, "_span", None)
        made: tuple[Because, ...] = ()
        if span is not None:
            made = (Because("the config is made here", f"{shown(span.file)}:{span.line}"),)
        return Answer(line, text, "page", (), made, (), (note,))

    def _field(self, line: int, text: str, name: str, number: int) -> Answer:
        readers = self._field_readers(name)
        because = Because(self._read_by(name, readers))
        if not readers and name in TRAINER_FIELDS:
            because = Because(f"`{name}` is read by the trainer")
        found = self._fields.definition(name, number)
        places = (found,) if found is not None else ()
        fact = self._fields.named(name, number)
        value = Because(f"its value, {fact.value}: {fact.origin}")
        return Answer(line, text, "page", places, (value, because))

    def _field_readers(self, name: str) -> list[int]:
        """Lines that read `config.name`, and `self.name` in the page's config classes."""
        found: set[int] = set()
        for statement in self._body.tree.body:
            config_class = isinstance(statement, ast.ClassDef) and statement.name in {
                "Config",
                *self._traced.configs.values(),
            }
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and node.attr == name:
                    base = ast.unparse(node.value).rpartition(".")[2]
                    if base.endswith("config") or (config_class and base == "self"):
                        found.add(node.lineno)
        return sorted(found)

    def _assertion(self, line: int, text: str) -> Answer:
        reasons: list[Because] = []
        for assumption in self._traced.facts.assumptions:
            test = code_of(assumption.test)
            if test in text:
                for decision in self._traced.facts.decisions:
                    if decision.value.fields == assumption.fields:
                        at = self._places.of(decision.node)
                        if at is not None:
                            where = f"{shown(at.file.path)}:{at.line}"
                            words = f"`{code_of(decision.node)}` was decided by it"
                            reasons.append(
                                Because(words, where, self._fields.of(assumption.fields))
                            )
        note = "what the text of the classes assumes of the numbers"
        return Answer(line, text, "page", (), tuple(dict.fromkeys(reasons)), (), (note,))

    def _read_by(self, name: str, lines: list[int]) -> str:
        there = [number for line in lines if (number := self.on_page(line)) is not None]
        if not there:
            return f"nothing on the page reads `{name}`"
        few = ", ".join(str(n) for n in there[:6]) + (", ..." if len(there) > 6 else "")
        return f"`{name}` is read on line{'s' if len(there) > 1 else ''} {few} of the page"

    # ---------------------------------------------------------------- the layout's own text

    def _laid_out(self, line: int, text: str, start: str, note: str) -> Answer:
        """A line that `page.j2` writes: the block there that begins with `start`."""
        lines = self._template("page.j2").splitlines()
        stripped = text.strip()
        same = [n for n, t in enumerate(lines, 1) if t.strip() == stripped and stripped]
        first = [n for n, t in enumerate(lines, 1) if t.strip().startswith(start)]
        return Answer(
            line, text, "page", self._lines("page.j2", same[:1] or first[:1]), (), (), (note,)
        )

    def _template(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")

    def _lines(self, name: str, numbers: list[int]) -> tuple[Place, ...]:
        if not numbers:
            return ()
        path = self._folder / name
        lines = self._template(name).splitlines()
        return (place(str(path), lines, min(numbers), max(numbers), "", numbers),)


def _decorated(node: ast.stmt, line: int) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(d.lineno <= line <= (d.end_lineno or 0) for d in decorators)
