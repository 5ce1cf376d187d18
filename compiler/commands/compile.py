"""`specc compile`."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from .options import Tell, diagnostics_format, end


@click.command("compile")
@click.argument("spec")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="PAGE",
    help="Where the page goes; by default beside the spec: llama.py for llama_spec.py.",
)  # fmt: skip
@click.option(
    "--set", "overrides", multiple=True, metavar="config.FIELD=VALUE",
    help="Set a field in every config of the spec, or a number of a page. May be repeated.",
)  # fmt: skip
@click.option("--no-validate", is_flag=True, help="Write the page without comparing it.")
@click.option("--force", is_flag=True, help="Overwrite a page that was edited by hand.")
@click.option("--merge", is_flag=True, help="Keep the page's hand edits in what is compiled now.")
@diagnostics_format
def command(
    spec: str,
    output: Path | None,
    overrides: tuple[str, ...],
    no_validate: bool,
    force: bool,
    merge: bool,
    tell: Tell,
) -> None:
    """Compile SPEC into a page and validate it.

    SPEC is FILE.py, FILE.py:NAME, FILE.yaml or package.module:NAME. NAME may be left out where the
    file has one spec that no other refers to.

    SPEC may also be a page, edited by hand or not, or one at a git revision (HEAD~3:llama.py): it
    is checked, run once and written as it stands.

    With --merge a page that was edited by hand keeps its edits and gets what has changed. Where
    both changed one place, the page stays, a file beside it holds both, and the exit status is 1.
    """
    if merge and force:
        raise click.UsageError(
            "--merge keeps the edits and --force loses them: give one of the two"
        )
    _collect_rarely()
    from specc.compiler.sources.source import open_page

    page = open_page(spec, overrides=overrides)
    if page is not None:
        if merge:
            raise click.UsageError(f"{spec} is a page: --merge takes the spec that it comes from")
        from specc.compiler.sources.rewrite import rewrite

        written = rewrite(page, output, overrides, run=not no_validate, force=force)
        tell(written.notes, "note")
        click.echo(written.said)
        return
    from specc.compiler.diagnostics import shown_path
    from specc.compiler.generate import generate
    from specc.compiler.target import parse_target
    from specc.compiler.write import write_page

    generated = generate(parse_target(spec), overrides, validate=not no_validate)
    path = output or generated.target.default_page()
    text = generated.page(path)
    found = f"{generated.compiled.parameters:,} parameters, {generated.validation}"
    if merge:
        from specc.compiler.upkeep.three_way import merge_page

        merged = merge_page(path, text)
        tell(generated.warnings, "warning")
        tell(generated.notes, "note")
        tell(merged.notes, "warning")
        tell(merged.conflicts)
        click.echo(merged.render() if merged.conflicts else f"{merged.render()}; {found}")
        end(1 if merged.conflicts else 0)
    changed = write_page(path, text, force=force)
    tell(generated.warnings, "warning")
    tell(generated.notes, "note")
    done = "wrote" if changed else "unchanged:"
    click.echo(f"{done} {shown_path(path)}: {text.count(chr(10))} lines, {found}")


def _collect_rarely() -> None:
    """Importing torch and building trees makes much and frees little: half a second of a compile
    would go into looking for garbage."""
    gc.set_threshold(200_000, 50, 50)
