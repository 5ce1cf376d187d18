"""`specc check`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import Tell, diagnostics_format, end

if TYPE_CHECKING:
    from specc.compiler.upkeep.verdict import Verdict

WORDS = {"fresh": "fresh", "stale": "stale", "unknown": "cannot be checked"}


@click.command("check")
@click.argument(
    "paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), metavar="N",
    help="Compile up to N pages at a time; by default as many as there are processors.",
)  # fmt: skip
@diagnostics_format
def command(paths: tuple[Path, ...], jobs: int | None, tell: Tell) -> None:
    """Say of pages whether they are what their specs give today.

    Each PATH is a page, or a folder whose pages are looked for; without one, all pages of the git
    work tree are. Nothing is written.

    Exits with 0 if all are fresh, with 1 and a diff where one is stale (spec changed, library
    changed, formatter changed, edited by hand), with 2 where one cannot be checked.
    """
    from specc.compiler.upkeep.check_many import check_pages
    from specc.compiler.upkeep.find_pages import find_pages

    named = {path for path in paths if not path.is_dir()}
    counts: Counter[str] = Counter()
    for outcome in check_pages(find_pages(paths), jobs=jobs, format=tell.format):
        verdict = outcome.verdict
        counts[verdict.state if verdict else "unknown"] += 1
        # A page of many that is simply fresh is one of the count below.
        if verdict and (outcome.page in named or not verdict.fresh or verdict.causes):
            click.echo(verdict.render())
            _annotate(verdict, tell)
        if outcome.said:
            click.echo(outcome.said, err=True)
    click.echo(_summary(counts))
    end(2 if counts["unknown"] else 1 if counts["stale"] else 0)


def _annotate(verdict: Verdict, tell: Tell) -> None:
    """The diff of a stale page, or for a program a diagnostic at the first line that differs."""
    if verdict.diff and tell.format != "json":
        click.echo(verdict.diff, nl=False)
    if tell.format == "text" or verdict.state == "unknown" or not verdict.causes:
        return
    from specc.compiler.diagnostics import shown_path
    from specc.templates.diagnostic import Diagnostic, Span

    page, line = shown_path(verdict.page), verdict.line
    span = Span(str(verdict.page), line, 1, 2)
    if verdict.fresh:
        tell([Diagnostic("SP609", f"`{page}` is fresh: {verdict.note}", span=span)], "note")
        return
    help = "compile it again; `specc check` shows the difference"
    if any("hand" in word or "markers" in word for word in verdict.causes):
        help = "`specc compile --merge` keeps the edits, `specc eject` hands the page over"
    message = f"`{page}` is stale: {', '.join(verdict.causes)}"
    tell([Diagnostic("SP606", message, span=span, help=help)])


def _summary(counts: Counter[str]) -> str:
    total = sum(counts.values())
    if not total:
        return "no pages found"
    parts = [f"{counts[state]} {word}" for state, word in WORDS.items() if counts[state]]
    pages = "1 page" if total == 1 else f"{total} pages"
    return f"{pages}: {', '.join(parts)}"
