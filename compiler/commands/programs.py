"""Commands that are programs of the runtime: their arguments, --help included, are theirs."""

from __future__ import annotations

import sys
from importlib import import_module

import click


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
