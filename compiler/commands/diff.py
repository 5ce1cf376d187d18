"""`specc diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .models import model_options
from .options import Tell, diagnostics_format

if TYPE_CHECKING:
    from specc.compiler.render.code_lines import CodeBlock
    from specc.compiler.render.model import Comparison
    from specc.compiler.sources import Source


@click.command("diff")
@click.argument("a")
@click.argument("b", required=False)
@model_options
@click.option("--code/--no-code", default=None, help="Show the lines of code that differ.")
@diagnostics_format
def command(
    a: str,
    b: str | None,
    everything: bool,
    form: str | None,
    html: Path | None,
    length: int | None,
    layouts: tuple[str, ...],
    overrides: tuple[str, ...],
    no_color: bool,
    code: bool | None,
    tell: Tell,
) -> None:
    """Compare the architectures of two models.

    A and B are specs, pages, or either as it stood at a git revision: llama_spec.py, llama.py,
    HEAD~3:models/llama.py. Without B, A is compared with what --set makes of it.

    Exits with 0 if they are the same architecture, with 1 if they differ, with 2 if one could not
    be read. The lines of code are shown by default where both are pages.
    """
    from .output import screen, write_out

    if b is None and not overrides:
        raise click.UsageError("B is missing; with --set it may be left out: what A becomes")
    comparison = _compared(a, b, overrides, length, layouts, code, tell)
    if html is not None:
        from specc.compiler.render.html import html_diff

        text = html_diff(
            comparison.difference,
            comparison.before.figures,
            comparison.after.figures,
            comparison.code,
        )
        html.write_text(text, encoding="utf-8", newline="\n")
    elif form == "json":
        from specc.compiler.render.json_form import json_diff

        write_out(json_diff(comparison, everything=everything))
    elif form == "markdown":
        from specc.compiler.render.markdown import markdown_diff

        write_out(markdown_diff(comparison, everything=everything))
    else:
        from specc.compiler.render.terminal import terminal_diff

        write_out(terminal_diff(comparison, screen(no_color), everything=everything))
    sys.exit(0 if comparison.difference.empty else 1)


def _compared(
    a: str,
    b: str | None,
    overrides: tuple[str, ...],
    length: int | None,
    layouts: tuple[str, ...],
    code: bool | None,
    tell: Tell,
) -> Comparison:
    from specc.compiler.architecture.compare import compare
    from specc.compiler.render.model import Comparison
    from specc.compiler.sources import open_source

    from .models import layouts_of, models_of, short_names

    degrees = layouts_of(layouts)
    if b is None:
        sources = [open_source(a), open_source(a, overrides=overrides)]
        names = [short_names([a])[0], ", ".join(text.removeprefix("config.") for text in overrides)]
    else:
        sources = [open_source(text, overrides=overrides) for text in (a, b)]
        names = short_names([source.name for source in sources])
    for source in sources:
        tell(source.warnings, "warning")
    before, after = models_of(sources, names, length, degrees)
    shown = code if code is not None else all(source.kind == "page" for source in sources)
    return Comparison(
        before,
        after,
        compare(before.architecture, after.architecture),
        _code(*sources) if shown else (),
    )


def _code(before: Source, after: Source) -> tuple[CodeBlock, ...]:
    """The lines that differ, but for the headers."""
    from specc.compiler.header import split_page
    from specc.compiler.render.code_lines import code_lines

    bodies = []
    for source in (before, after):
        parsed = split_page(source.page_text)
        bodies.append(parsed[1] if parsed else source.page_text)
    starts = [
        1 + source.page_text.count("\n") - body.count("\n")
        for source, body in zip((before, after), bodies, strict=True)
    ]
    return code_lines(*bodies, before_start=starts[0], after_start=starts[1])
