"""`specc check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("check")
@click.argument(
    "pages", nargs=-1, required=True, metavar="PAGE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)  # fmt: skip
def command(pages: tuple[Path, ...]) -> None:
    """Say of each PAGE whether it is what its spec gives today.

    Exits with 0 if all are, with 1 and a diff where one is stale (spec changed, library changed,
    formatter changed, edited by hand), with 2 where one could not be checked. Nothing is written.
    """
    from specc.compiler.check import check_page
    from specc.compiler.report import report

    status = 0
    for page in pages:
        try:
            verdict = check_page(page)
        except Exception as error:  # the other pages are checked all the same
            click.echo(report(error), err=True)
            status = 2
            continue
        click.echo(verdict.render())
        if not verdict.fresh:
            click.echo(verdict.diff, nl=False)
            status = max(status, 1)
    sys.exit(status)
