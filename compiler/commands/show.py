"""`specc show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .models import model_options
from .options import Tell, diagnostics_format

if TYPE_CHECKING:
    from specc.compiler.render.model import Model
    from specc.runtime.layouts import Degrees


@click.command("show")
@click.argument("model")
@model_options
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write a drawing; with --layout its collectives are marked.",
)  # fmt: skip
@diagnostics_format
def command(
    model: str,
    everything: bool,
    form: str | None,
    html: Path | None,
    svg: Path | None,
    length: int | None,
    layouts: tuple[str, ...],
    overrides: tuple[str, ...],
    no_color: bool,
    tell: Tell,
) -> None:
    """Show the architecture of a model and its figures.

    MODEL is a spec, a page, or either as it stood at a git revision: llama_spec.py, llama.py,
    HEAD~3:models/llama.py.
    """
    from specc.compiler.sources import open_source

    from .models import layouts_of, models_of, short_names

    degrees = layouts_of(layouts)
    source = open_source(model, overrides=overrides)
    tell(source.warnings, "warning")
    (found,) = models_of([source], short_names([source.name]), length, degrees)
    if html is not None or svg is not None:
        _draw(found, html, svg, degrees)
    if form is not None or (html is None and svg is None):
        _write(found, form, everything, no_color)


def _write(model: Model, form: str | None, everything: bool, no_color: bool) -> None:
    from .output import screen, write_out

    if form == "json":
        from specc.compiler.render.json_form import json_show

        write_out(json_show(model))
    elif form == "markdown":
        from specc.compiler.render.markdown import markdown_show

        write_out(markdown_show(model, everything=everything))
    else:
        from specc.compiler.render.terminal import terminal_show

        write_out(terminal_show(model, screen(no_color), everything=everything))


def _draw(model: Model, html: Path | None, svg: Path | None, degrees: tuple[Degrees, ...]) -> None:
    """Files for a browser; a drawing is of one layout, the first that is given."""
    from specc.compiler.write import write_file

    layout = degrees[0] if degrees else None
    if html is not None:
        from specc.compiler.render.html import html_show

        text = html_show(model.architecture, model.figures, layout=layout)
        write_file(html, text)
    if svg is not None:
        from specc.compiler.render.svg import svg as drawn

        text = drawn(model.architecture, layout=layout)
        write_file(svg, text)
