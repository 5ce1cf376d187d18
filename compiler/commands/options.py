"""What several commands take: `--format`, for the diagnostics that they print."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic

FORMATS = ("text", "json", "github")


def end(status: int) -> NoReturn:
    """End the command with an exit status."""
    raise click.exceptions.Exit(status)


class Tell:
    """Prints diagnostics to stderr in the form that the user chose; stdout is the command's.

    `tell(found, "note")` prints what a command goes on after, `tell.error(error)` an exception
    that it survives. An exception that leaves the command is printed without its help.
    """

    def __init__(self, format: str = "text") -> None:
        self.format = format

    def __call__(self, found: Iterable[Diagnostic], kind: str = "error") -> None:
        """Print diagnostics; `kind` is error, warning or note."""
        from specc.compiler.report import render_as

        text = render_as(self.format, found, kind)
        if text:
            click.echo(text, err=True)

    def error(self, error: Exception) -> None:
        """Print an exception: the diagnostics that it carries, or a user's traceback."""
        from specc.compiler.report import report

        click.echo(report(error, self.format), err=True)


def diagnostics_format(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--format` and hand it a `Tell` as the argument `tell`.

    Stands under `@click.command`, among the options. What the command raises is printed in the
    chosen form, and the program ends with 2; click's own exceptions go on to click. A command ends
    by `end`: a `SystemExit` is of the user's code, whose 0 would say that all is well.
    """

    @functools.wraps(command)
    def run(*args: Any, format: str, **options: Any) -> Any:
        tell = Tell(format)
        try:
            return command(*args, tell=tell, **options)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except SystemExit as ended:
            from specc.compiler.report import exit_as_error

            tell.error(exit_as_error(ended))
        except Exception as error:
            tell.error(error)
        return end(2)

    return click.option(
        "--format", "format", type=click.Choice(FORMATS), default="text", show_default=True,
        help="How errors, warnings and notes are printed.",
    )(run)  # fmt: skip
