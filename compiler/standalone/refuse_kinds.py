"""Kinds of layers that do not fold into a page of torch alone are refused, with their line."""

from __future__ import annotations

import ast

import specc.runtime

from ..errors import refuse
from .read import Page

# Modules of the runtime whose layers hand losses to the graph by functions of their own, or count
# what a step does: what is left of them in one process is not the few lines of other layers.
_OF_EXPERTS = ("moe_", "grouped", "expert_linear")
_OF_FURTHER_TOKENS = ("multi_token",)


def refuse_kinds(page: Page) -> None:
    """Raises CompileError where the page imports a layer of such a kind."""
    for node in ast.parse(page.text).body:
        if not isinstance(node, ast.ImportFrom) or node.module != "specc.runtime":
            continue
        for alias in node.names:
            module = getattr(getattr(specc.runtime, alias.name, None), "__module__", "")
            home = module.rpartition(".")[2]
            if home.startswith(_OF_EXPERTS):
                _refuse("experts", alias.name, page)
            if home.startswith(_OF_FURTHER_TOKENS):
                _refuse("a prediction of further tokens", alias.name, page)


def _refuse(what: str, name: str, page: Page) -> None:
    refuse(
        "SP686",
        f"the page has {what} (`{name}`), which a standalone page cannot have",
        page.span(name),
        help="eject it with --vendor DIR, which copies the runtime's modules beside the page: that "
        "needs torch alone, too",
    )
