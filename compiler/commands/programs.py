"""Commands that are programs of the runtime: their arguments, --help included, are theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import click


@contextmanager
def refusals() -> Iterator[None]:
    """For a command of click's: a Refusal is told in its sentence, and ends the program with 2."""
    from specc.runtime.refusal import Refusal

    try:
        yield
    except Refusal as refusal:
        click.echo(f"error: {refusal}", err=True)
        raise click.exceptions.Exit(2) from None


class Program(click.Command):
    """`specc NAME ...`: the same as `python -m specc.runtime.NAME ...`."""

    def __init__(self, name: str, help: str) -> None:
        super().__init__(
            name,
            callback=self.run,
            help=f"{help}: the same as `python -m specc.runtime.{name}`.",
            add_help_option=False,
        )

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.params = {"arguments": list(args)}
        return []

    def run(self, arguments: list[str]) -> None:
        sys.exit(import_module(f"specc.runtime.{self.name}").main(arguments))
