"""A page as an input: parsed, checked, run once, and handed on as it stands.

Nothing is folded and nothing is pruned: what a person wrote into it is as good as what the
compiler wrote. What is asked is that it is a page: it builds, its forward runs, nothing of a spec
is left in it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ..diagnostics import fail
from ..survivors import words_left
from .source import Source
from .statements import lines_of

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic, Span

MAKERS = frozenset({"specc.templates", "specc.compiler"})  # what a page never imports


@dataclass(frozen=True)
class ReadBack:
    """What was found: how many numbers the model learns, None where it was not run."""

    parameters: int | None


def read_back(page: Source, *, run: bool = True) -> ReadBack:
    """Check a page.

    Raises `SpecError`: SP660 where it is no Python, SP661 where words of a spec are left in it,
    SP662 where it has no `build_model` or states a loss that nobody knows; and what
    `architecture.run.run_page` raises where it does not build or run.
    """
    tree = _parsed(page)
    _refuse_words(page, tree)
    _refuse_structure(page, tree)
    if not run:
        return ReadBack(None)
    from ..architecture.run import run_page

    model = run_page(page.page_text, page.name).model
    return ReadBack(sum(parameter.numel() for parameter in model.parameters()))


def _parsed(page: Source) -> ast.Module:
    try:
        return ast.parse(page.page_text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", None) or str(error)
        text = f"`{page.name}` is no Python: {message}"
        found = _at(page, line, "SP660", text, help="put the line right")
        _raise([found])


def _refuse_words(page: Source, tree: ast.Module) -> None:
    found = [
        (line, f"`{word}` is a word of specs, and a page is what is left of one")
        for word, line in words_left(tree)
    ]
    for node in ast.walk(tree):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        for module in modules:
            if ".".join(module.split(".")[:2]) in MAKERS:
                text = f"the page imports `{module}`, which makes pages"
                found.append((getattr(node, "lineno", 1), text))
    if found:
        help = "write the class into the page, or change the spec and compile that"
        _raise([_at(page, line, "SP661", text, help=help) for line, text in found])


def _refuse_structure(page: Source, tree: ast.Module) -> None:
    from specc.runtime.page import LOSSES

    if not any(isinstance(n, ast.FunctionDef) and n.name == "build_model" for n in tree.body):
        fail(
            "SP662",
            f"`{page.name}` has a page's header and no `build_model`",
            help="a page is built by `build_model(mesh, config, seed=, device=)`",
        )
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LOSS":
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if value not in LOSSES:
                text = f"`LOSS` is {ast.unparse(node.value)}, which the trainer does not know"
                known = " or ".join(f'"{loss}"' for loss in LOSSES)
                _raise([_at(page, node.lineno, "SP662", text, help=f"write {known}")])


def _at(page: Source, line: int, code: str, message: str, *, help: str) -> Diagnostic:
    from specc.templates.diagnostic import Diagnostic

    return Diagnostic(code, message, "", _span(page, line), "", help=help)


def _span(page: Source, line: int) -> Span | None:
    """A line of the page's file; of a page at a revision there is none to show."""
    from specc.templates.diagnostic import Span

    if page.path is None:
        return None
    lines = lines_of(page.page_text)
    text = lines[line - 1].rstrip() if line <= len(lines) else ""
    return Span(str(page.path), line, len(text) - len(text.lstrip()) + 1, len(text) + 1)


def _raise(found: list[Diagnostic]) -> NoReturn:
    from specc.templates.diagnostic import SpecError

    raise SpecError(found)
