"""The command `specc`. Its help imports neither torch nor libcst nor black: commands do."""

from __future__ import annotations

import sys
from importlib import import_module
from keyword import iskeyword

import click

from .commands.programs import Program

# What `specc --help` says of each: a command's own file is imported only when it is called.
COMMANDS = {
    "compile": "Compile a spec into a page and validate it.",
    "check": "Say of pages whether they are what their specs give today.",
    "diff": "Compare the architectures of two models.",
    "show": "Show the architecture of a model, its figures and a drawing.",
    "why": "Say where a line of a page comes from.",
    "eject": "Hand a page over: without its header, standalone, or with its runtime.",
    "explain": "Explain the code of a diagnostic.",
    "import": "Write a spec for a Hugging Face config.",
    "weights": "Bring weights in from Hugging Face's files, or out to them.",
}
PROGRAMS = {
    "train": "Train a page",
    "sample": "Write text with a trained page",
    "tokenize": "Write text as token files",
    "verify": "Compare a page at many layouts with one process",
}


class Commands(click.Group):
    """The commands by name, each imported when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [*COMMANDS, *PROGRAMS]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in PROGRAMS:
            return Program(name, PROGRAMS[name])
        if name not in COMMANDS:
            return None
        file = f"{name}_" if iskeyword(name) else name
        command: click.Command = import_module(f"specc.compiler.commands.{file}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `specc --help`, without an import of any of them."""
        with formatter.section("Commands"):
            programs = {name: f"{text}." for name, text in PROGRAMS.items()}
            formatter.write_dl(list((COMMANDS | programs).items()))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a finding (a stale page, a difference), 2 anything
    that went wrong."""
    try:
        cli.main(arguments, prog_name="specc")
    except Exception as error:
        from .report import report

        click.echo(report(error), err=True)
        sys.exit(2)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .header import specc_version

        click.echo(f"specc {specc_version()}")
        context.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version.",
)  # fmt: skip
def cli() -> None:
    """Compile a ModuleSpec tree into one flat, readable PyTorch file, train that, review it."""


if __name__ == "__main__":
    main()
