"""The command `specc`. Its help imports neither torch nor libcst nor black: commands do."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click


class ProgramCommand(click.Command):
    """A command whose arguments, --help included, are for the program that it runs."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.params = {"arguments": list(args)}
        return []


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a stale page, 2 anything that went wrong."""
    try:
        cli.main(arguments, prog_name="specc")
    except Exception as error:
        from .report import report

        click.echo(report(error), err=True)
        sys.exit(2)


def _collect_rarely() -> None:
    """Importing torch and building trees makes much and frees little: half a second of a compile
    would go into looking for garbage."""
    gc.set_threshold(200_000, 50, 50)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .header import specc_version

        click.echo(f"specc {specc_version()}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version.",
)  # fmt: skip
def cli() -> None:
    """Compile a ModuleSpec tree into one flat, readable PyTorch file, and train that."""


@cli.command("compile")
@click.argument("spec")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="PAGE",
    help="Where the page goes; by default beside the spec: llama.py for llama_spec.py.",
)  # fmt: skip
@click.option(
    "--set", "overrides", multiple=True, metavar="config.FIELD=VALUE",
    help="Set a field in every config of the spec. May be repeated.",
)  # fmt: skip
@click.option("--no-validate", is_flag=True, help="Write the page without comparing it.")
@click.option("--force", is_flag=True, help="Overwrite a page that was edited by hand.")
def compile_command(
    spec: str, output: Path | None, overrides: tuple[str, ...], no_validate: bool, force: bool
) -> None:
    """Compile SPEC into a page and validate it.

    SPEC is FILE.py, FILE.py:NAME, FILE.yaml or package.module:NAME. NAME may be left out where the
    file has one spec that no other refers to.
    """
    _collect_rarely()
    from .diagnostics import render, shown_path
    from .generate import generate
    from .target import parse_target
    from .write import write_page

    generated = generate(parse_target(spec), overrides, validate=not no_validate)
    path = output or generated.target.default_page()
    text = generated.page(path)
    changed = write_page(path, text, force=force)
    for kind, found in (("warning", generated.warnings), ("note", generated.notes)):
        if found:
            click.echo(render(found, kind), err=True)
    click.echo(
        f"{'wrote' if changed else 'unchanged:'} {shown_path(path)}: {text.count(chr(10))} lines, "
        f"{generated.compiled.parameters:,} parameters, {generated.validation}"
    )


@cli.command("check")
@click.argument(
    "pages", nargs=-1, required=True, metavar="PAGE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)  # fmt: skip
def check_command(pages: tuple[Path, ...]) -> None:
    """Say of each PAGE whether it is what its spec gives today.

    Exits with 0 if all are, with 1 and a diff where one is stale (spec changed, library changed,
    formatter changed, edited by hand), with 2 where one could not be checked. Nothing is written.
    """
    from .check import check_page
    from .report import report

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


@cli.command("train", cls=ProgramCommand)
def train_command(arguments: list[str]) -> None:
    """Train a page: the same as `python -m specc.runtime.train`."""
    from specc.runtime import train

    sys.exit(train.main(arguments))


@cli.command("sample", cls=ProgramCommand)
def sample_command(arguments: list[str]) -> None:
    """Write text with a trained page: the same as `python -m specc.runtime.sample`."""
    from specc.runtime import sample

    sys.exit(sample.main(arguments))


@cli.command("tokenize", cls=ProgramCommand)
def tokenize_command(arguments: list[str]) -> None:
    """Write text as token files: the same as `python -m specc.runtime.tokenize`."""
    from specc.runtime import tokenize

    sys.exit(tokenize.main(arguments))


@cli.command("verify", cls=ProgramCommand)
def verify_command(arguments: list[str]) -> None:
    """Compare a page at many layouts with one process: as `python -m specc.runtime.verify`."""
    from specc.runtime import verify

    sys.exit(verify.main(arguments))


if __name__ == "__main__":
    main()
