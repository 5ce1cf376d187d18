"""`specc import`: a model from elsewhere as a spec."""

from __future__ import annotations

from pathlib import Path

import click

from .programs import refusals


@click.group("import")
def command() -> None:
    """Bring in a model from elsewhere as a spec."""


@command.command("hf")
@click.argument("source")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="SPEC",
    help="Where the spec goes; by default llama_3_8b_spec.py, by the model's name.",
)  # fmt: skip
@click.option("--name", metavar="NAME", help="What the spec is called in the file.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def hf(source: str, output: Path | None, name: str | None, force: bool) -> None:
    """Write a spec for the Hugging Face config at SOURCE.

    SOURCE is a config.json, a folder that holds one, or OWNER/MODEL on the hub, which is asked by
    the package huggingface_hub. Each field of the config is used, known to say nothing of the
    model, or refused with its value.

    Beside the spec goes NAME_hf.yaml, which says where each tensor goes: `specc weights` reads it.
    """
    from specc.compiler.diagnostics import shown_path

    with refusals():
        from specc.huggingface.write import import_model

        spec, table = import_model(source, output, name=name, force=force)
    click.echo(f"wrote {shown_path(spec)} and {shown_path(table)}")
