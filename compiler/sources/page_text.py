"""Whether a text is a page, found without running it."""

from __future__ import annotations

import ast

from ..header import split_page


def is_page(text: str) -> bool:
    """Whether a text opens with a page's header, or defines `build_model` at its top level."""
    return split_page(text) is not None or _defines_build_model(text)


def origin_of(text: str) -> str:
    """What a page's header says that it comes from, `--set` and all; "" where it has none."""
    parsed = split_page(text)
    if parsed is None:
        return ""
    header, _ = parsed
    return with_overrides(header.origin, header.overrides)


def with_overrides(origin: str, overrides: tuple[str, ...]) -> str:
    """An origin and what was changed, as one would type them."""
    return " ".join([origin, *(f"--set {override}" for override in overrides)])


def _defines_build_model(text: str) -> bool:
    if "build_model" not in text:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False  # a spec's file then, whose import says what is wrong with it
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "build_model" for node in tree.body
    )
