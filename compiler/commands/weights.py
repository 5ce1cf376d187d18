"""`specc weights`: a page's parameters from Hugging Face's files, and back."""

from __future__ import annotations

from pathlib import Path

import click

from .programs import refusals

_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_map = click.option(
    "--map", "map", type=_FILE, metavar="FILE", help="In place of NAME_hf.yaml beside the page."
)


@click.group("weights")
def command() -> None:
    """Bring a page's weights in from Hugging Face's files, or out to them."""


@command.command("import")
@click.argument("page", type=_FILE)
@click.argument("hf_folder", type=_FOLDER)
@click.argument("checkpoint", type=_FOLDER)
@_map
def import_(page: Path, hf_folder: Path, checkpoint: Path, map: Path | None) -> None:
    """Write the weights of HF_FOLDER as a checkpoint of PAGE, step 0 in the folder CHECKPOINT.

    Tensor by tensor, in float32, as every checkpoint is. tokenizer.json and generation_config.json
    go along.
    """
    from specc.compiler.diagnostics import shown_path

    with refusals():
        from specc.huggingface.import_weights import import_weights

        written = import_weights(page, hf_folder, checkpoint, map)
    click.echo(f"wrote {shown_path(written)}")


@command.command("export")
@click.argument("page", type=_FILE)
@click.argument("checkpoint", type=_FOLDER)
@click.argument("hf_folder", type=_FOLDER)
@_map
@click.option(
    "--dtype", type=click.Choice(("float32", "bfloat16", "float16")),
    help="Of the weights; by default that of the model's config.",
)  # fmt: skip
@click.option(
    "--shard-size", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True,
    metavar="GB", help="How large a file may be.",
)  # fmt: skip
def export(
    page: Path,
    checkpoint: Path,
    hf_folder: Path,
    map: Path | None,
    dtype: str | None,
    shard_size: float,
) -> None:
    """Write a CHECKPOINT of PAGE as HF_FOLDER, which transformers loads with from_pretrained."""
    from specc.compiler.diagnostics import shown_path

    with refusals():
        from specc.huggingface.export_weights import export_weights

        written = export_weights(
            page, checkpoint, hf_folder, map, dtype=dtype, shard_size=int(shard_size * 1e9)
        )
    click.echo(f"wrote {shown_path(written)}")
