"""`specc why`."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Tell, diagnostics_format


@click.command("why")
@click.argument("place", metavar="PAGE:LINE")
@diagnostics_format
def command(place: str, tell: Tell) -> None:
    """Say where a line of a page comes from: which line of which template or class, and which
    facts folded it.

    PAGE:LINE is one line, PAGE:FIRST-LAST several. The page's spec, which its header names, is
    compiled again for it; nothing is written. With --format json the answer is one JSON object.
    """
    from specc.compiler.sources.why import explain, parse_lines
    from specc.compiler.sources.why_text import as_json, as_text

    page, first, last = parse_lines(place)
    explained = explain(Path(page), first, last)
    click.echo(as_json(explained) if tell.format == "json" else as_text(explained))
