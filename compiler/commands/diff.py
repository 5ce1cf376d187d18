"""`specc diff`."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .models import model_options
from .options import Tell, diagnostics_format, end

if TYPE_CHECKING:
    from specc.compiler.render.code_lines import CodeBlock
    from specc.compiler.render.model import Comparison
    from specc.compiler.sources import Source
    from specc.runtime.layouts import Degrees


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
    from .models import layouts_of

    degrees = layouts_of(layouts)
    if b is None and not overrides:
        raise click.UsageError("B is missing; with --set it may be left out: what A becomes")
    if b is not None and os.devnull in (a, b):
        _write_alone(a, b, length, degrees, no_color)
        end(1)
    comparison = _compared(_Asked(a, b, overrides, length, degrees, code), tell)
    if html is not None:
        from specc.compiler.render.html import html_diff
        from specc.compiler.write import write_file

        text = html_diff(
            comparison.difference,
            comparison.before.figures,
            comparison.after.figures,
            comparison.code,
            layout=degrees[0] if degrees else None,
        )
        write_file(html, text)
    if html is None or form is not None:
        _write(comparison, form, everything, no_color)
    end(0 if comparison.difference.empty else 1)


@dataclass(frozen=True)
class _Asked:
    a: str
    b: str | None
    overrides: tuple[str, ...]
    length: int | None
    layouts: tuple[Degrees, ...]
    code: bool | None


def _compared(asked: _Asked, tell: Tell) -> Comparison:
    from specc.compiler.architecture.compare import compare
    from specc.compiler.render.model import Comparison
    from specc.compiler.sources import open_source

    from .models import models_of, short_names

    if asked.b is None:
        sources = [open_source(asked.a), open_source(asked.a, overrides=asked.overrides)]
        changed = ", ".join(text.removeprefix("config.") for text in asked.overrides)
        names = [*short_names([asked.a]), changed]
    else:
        sources = [open_source(text, overrides=asked.overrides) for text in (asked.a, asked.b)]
        names = short_names([source.name for source in sources])
    for source in sources:
        tell(source.warnings, "warning")
    before, after = models_of(sources, names, asked.length, asked.layouts)
    pages = all(source.kind == "page" for source in sources)
    return Comparison(
        before,
        after,
        compare(before.architecture, after.architecture),
        _code(*sources) if (pages if asked.code is None else asked.code) else (),
    )


def _write(comparison: Comparison, form: str | None, everything: bool, no_color: bool) -> None:
    from .output import screen, write_out

    if form == "json":
        from specc.compiler.render.json_form import json_diff

        write_out(json_diff(comparison, everything=everything))
    elif form == "markdown":
        from specc.compiler.render.markdown import markdown_diff

        write_out(markdown_diff(comparison, everything=everything))
    else:
        from specc.compiler.render.terminal import terminal_diff

        write_out(terminal_diff(comparison, screen(no_color), everything=everything))


def _write_alone(
    a: str, b: str, length: int | None, layouts: tuple[Degrees, ...], no_color: bool
) -> None:
    """The one model that there is: `git difftool` names the null device for a file that is new, or
    is gone.
    """
    from specc.compiler.render.terminal import terminal_show
    from specc.compiler.sources import open_source

    from .models import models_of, short_names
    from .output import screen, write_out

    source = open_source(a if b == os.devnull else b)
    (model,) = models_of([source], short_names([source.name]), length, layouts)
    model = dataclasses.replace(model, origin="gone" if b == os.devnull else "new")
    write_out(terminal_show(model, screen(no_color)))


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
