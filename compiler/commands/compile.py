"""`specc compile`."""

from __future__ import annotations

import gc
from pathlib import Path

import click


@click.command("compile")
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
def command(
    spec: str, output: Path | None, overrides: tuple[str, ...], no_validate: bool, force: bool
) -> None:
    """Compile SPEC into a page and validate it.

    SPEC is FILE.py, FILE.py:NAME, FILE.yaml or package.module:NAME. NAME may be left out where the
    file has one spec that no other refers to.
    """
    _collect_rarely()
    from specc.compiler.diagnostics import render, shown_path
    from specc.compiler.generate import generate
    from specc.compiler.target import parse_target
    from specc.compiler.write import write_page

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


def _collect_rarely() -> None:
    """Importing torch and building trees makes much and frees little: half a second of a compile
    would go into looking for garbage."""
    gc.set_threshold(200_000, 50, 50)
