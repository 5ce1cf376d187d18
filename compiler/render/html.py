"""A difference or a model as one HTML file: no network, no script, light and dark."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from specc.runtime.layouts import Degrees

from ..architecture.difference import Difference
from ..architecture.figure import Figure
from ..architecture.tree import Architecture
from .code_lines import CodeBlock
from .figure_rows import figure_rows, lone_rows
from .html_code import code_views
from .html_tree import Tree, marked, tree_of
from .model_rows import show_rows
from .rows import diff_rows
from .summary import SAME, summary
from .svg import svg
from .svg_text import clean

_HERE = Path(__file__).parent


def html_diff(
    difference: Difference,
    figures_before: Sequence[Figure],
    figures_after: Sequence[Figure],
    code: Sequence[CodeBlock] = (),
    *,
    layout: Degrees | None = None,
) -> str:
    """What differs as a tree, the figures of both, both drawings, the lines that changed.

    The same bytes for the same difference. `layout`: collectives are marked in the drawings.
    """
    before, after = difference.before, difference.after
    rows = diff_rows(difference)
    olds, news = marked(difference, rows)
    return _page(
        title=f"specc diff: {clean(before.name)} → {clean(after.name)}",
        names=(clean(before.name), clean(after.name)),
        told=SAME if difference.empty else summary(difference).text(),
        tree=tree_of(rows),
        whole=tree_of(diff_rows(difference, everything=True)),
        figures=figure_rows(figures_before, figures_after),
        drawings=(
            _drawing(before, layout, olds, "before"),
            _drawing(after, layout, news, "after"),
        ),
        code=code_views(code),
    )


def html_show(
    architecture: Architecture, figures: Sequence[Figure], *, layout: Degrees | None = None
) -> str:
    """A model's tree, its figures and its drawing. The same bytes for the same model."""
    tree, whole = show_rows(architecture), show_rows(architecture, everything=True)
    return _page(
        title=f"specc show: {clean(architecture.name)}",
        names=(clean(architecture.name),),
        told="",
        tree=tree_of(tree),
        whole=tree_of(whole if whole != tree else ()),
        figures=lone_rows(figures),
        drawings=(_drawing(architecture, layout, {}, "drawing"),),
        code=(),
    )


def _page(*, whole: Tree, tree: Tree, **parts: Any) -> str:
    return (
        _environment()
        .get_template("html.j2")
        .render(
            css=(_HERE / "html.css").read_text(encoding="utf-8"),
            tree=tree,
            whole=whole,
            **parts,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,  # whatever comes from a user is text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["clean"] = clean
    return environment


@dataclass(frozen=True)
class _Drawing:
    """An SVG, whose text is escaped already, and how many pixels wide it is."""

    text: str
    width: str


def _drawing(
    architecture: Architecture, layout: Degrees | None, changes: dict[str, str], identity: str
) -> _Drawing:
    text = svg(architecture, layout=layout, changes=changes, identity=identity)
    found = re.search(r' width="([\d.]+)"', text)
    assert found is not None  # svg states its width
    return _Drawing(text, found[1])
