"""`specc eject`."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Tell, diagnostics_format


@click.command("eject")
@click.argument("page", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--standalone", is_flag=True,
    help="Write the model beside it as a file for one process that needs torch alone.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Where --standalone writes to; by default NAME_standalone.py beside the page.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite what is there, with --standalone.")
@click.option(
    "--vendor", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Copy the page and the runtime modules that it needs into the package DIR.",
)  # fmt: skip
@click.option("--with-train", is_flag=True, help="And the training program, with --vendor.")
@diagnostics_format
def command(
    page: Path,
    standalone: bool,
    output: Path | None,
    force: bool,
    folder: Path | None,
    with_train: bool,
    tell: Tell,
) -> None:
    """Hand PAGE over: take its header off, so that it is yours.

    Edits made by hand stay. `specc check` does not look for the page any more, and `specc compile`
    does not write to it. With --standalone or --vendor the page stays as it is, and what needs
    torch but not specc is written elsewhere.
    """
    if standalone and folder:
        raise click.UsageError("--standalone and --vendor write two things: give one of them")
    if (output or force) and not standalone:
        raise click.UsageError("-o and --force go with --standalone")
    if with_train and not folder:
        raise click.UsageError("--with-train goes with --vendor")
    if standalone:
        _standalone(page, output or page.with_name(f"{page.stem}_standalone.py"), force)
    elif folder:
        _vendor(page, folder, with_train)
    else:
        from specc.compiler.upkeep.eject import eject

        click.echo(eject(page).render())


def _standalone(page: Path, output: Path, force: bool) -> None:
    from specc.compiler.diagnostics import shown_path
    from specc.compiler.upkeep.eject import eject_standalone

    changed = eject_standalone(page, output, force=force)
    click.echo(
        f"{'wrote' if changed else 'unchanged:'} {shown_path(output)}: it needs torch alone; "
        f"{shown_path(page)} is as it was"
    )


def _vendor(page: Path, folder: Path, with_train: bool) -> None:
    from specc.compiler.diagnostics import shown_path
    from specc.compiler.upkeep.vendor import vendor

    done = vendor(page, folder, with_train=with_train)
    count = len(done.written)
    files = "1 file" if count == 1 else f"{count} files"
    click.echo(
        f"wrote {files} of {len(done.files)} in {shown_path(folder)}: {shown_path(done.page)} "
        f"needs torch alone; {shown_path(page)} is as it was"
    )
