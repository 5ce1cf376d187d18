"""A page's text as a program, its names of the runtime still to be brought in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NoReturn

import libcst as cst

from specc.templates.diagnostic import Span

from .. import tree
from ..errors import refuse
from .program import Home, Program
from .runtime_source import PACKAGE, home_of
from .substitute import renamed

# What only the trainer reads.
DROPPED = frozenset({"LOSS", "LAYERS", "FIRST_STAGE", "LAST_STAGE", "NO_STAGES"})


class Page:
    """A page's text, and the line that a word of it stands on."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name

    def span(self, *words: str) -> Span | None:
        """Where the first of these words that the page has stands first, comments apart."""
        for word in words:
            for number, line in enumerate(self.text.splitlines(), 1):
                column = line.split("#")[0].find(word)
                if column >= 0 and not line.startswith("#"):
                    return Span(self.name, number, column + 1, column + 1 + len(word))
        return None


def read_page(text: str, name: str) -> tuple[Program, Page]:
    """The program that a page is, as its author wrote it. Raises CompileError."""
    page = Page(text, name)
    try:
        ast.parse(text)  # which says what is wrong in fewer words than libcst
        module = cst.parse_module(text)
    except (SyntaxError, cst.ParserSyntaxError) as error:
        line, column, told = 1, 1, "libcst cannot parse it"
        if isinstance(error, SyntaxError):
            line, column, told = error.lineno or 1, error.offset or 1, error.msg
        span = Span(name, line, column, column + 1)
        help = "put it right, or compile it again"
        refuse("SP680", f"the page is no Python: {told}", span, help=help)
    statements = list(module.body)
    docstring = tree.docstring_of(statements)
    program = Program(docstring.raw_value if docstring is not None else "", {}, {})
    if docstring is not None:
        statements = statements[1:]
    linked: dict[str, Home] = {}
    for position, statement in enumerate(statements):
        _note(statement, position, program, linked, page)
    if "build_model" not in program.statements:
        help = "give a page that `specc compile` wrote"
        refuse("SP681", f"`{name}` has no `build_model`, so it is no page", help=help)
    flat = {local: home.name for local, home in linked.items()}
    for key, statement in program.statements.items():
        program.statements[key] = renamed(statement, flat)
    program.pending = {home.name: home for home in linked.values()}
    program.flat = {home: name for name, home in program.pending.items()}
    program.read_before = frozenset(_reads(program.statements.values()))
    program.bound_before = frozenset(
        name
        for statement in program.statements.values()
        for item in tree.walk(statement)
        for name in tree.bound_names(item)
    )
    return program, page


def _note(
    statement: Any, position: int, program: Program, linked: dict[str, Home], page: Page
) -> None:
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        program.statements[statement.name.value] = statement
        return
    imports = isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )
    if not imports:
        stored = tree.stored_names(statement)
        if not stored <= DROPPED or not stored:
            key = min(stored) if len(stored) == 1 else f"statement {position}"
            program.statements[key] = statement
        return
    for small in statement.body:
        if isinstance(small, cst.ImportFrom):
            _import_from(small, program, linked, page)
            continue
        for alias in small.names:
            dotted = tree.dotted(alias.name) or ""
            if dotted == "specc" or dotted.startswith("specc."):
                _refuse_import(dotted, page)
            local = alias.evaluated_alias or dotted.split(".")[0]
            line = tree.code(cst.Import([alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)]))
            program.imports[local] = line


def _import_from(
    node: cst.ImportFrom, program: Program, linked: dict[str, Home], page: Page
) -> None:
    source = tree.dotted(node.module) if node.module is not None else ""
    if node.relative or isinstance(node.names, cst.ImportStar) or source is None:
        _refuse_import(tree.code(node), page)
    for alias in node.names:
        original = tree.dotted(alias.name) or ""
        local = alias.evaluated_alias or original
        if source == PACKAGE or source.startswith(f"{PACKAGE}."):
            module = source.removeprefix(PACKAGE).removeprefix(".") or "__init__"
            home = home_of(module, original)
            if home is None:
                _refuse_import(original, page)
            linked[local] = home
        elif source == "specc" or source.startswith("specc."):
            _refuse_import(original, page)
        elif source != "__future__":
            shown = original if local == original else f"{original} as {local}"
            program.imports[local] = f"from {source} import {shown}"


def _refuse_import(what: str, page: Page) -> NoReturn:
    refuse(
        "SP682",
        f"a standalone page cannot take in `{what}`: it is not a class or function that "
        "`specc.runtime` defines, imported by its name",
        page.span(what),
        help="import what the page uses from specc.runtime by name, or write it on the page",
    )


def _reads(statements: Any) -> Iterator[str]:
    """Every name and attribute that text reads."""
    for statement in statements:
        stored = {id(a) for a in tree.stored_attributes(statement)}
        for item in tree.walk_loads(statement):
            if isinstance(item, cst.Name):
                yield item.value
            elif isinstance(item, cst.Attribute) and id(item) not in stored:
                yield item.attr.value
