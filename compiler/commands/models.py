"""What `specc diff` and `specc show` have in common: options, and a model from what names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from specc.compiler.render.model import Model
    from specc.compiler.sources import Source
    from specc.runtime.layouts import Degrees


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both commands take; they stand under `@click.command`."""
    options = [
        click.option("--all", "everything", is_flag=True, help="Show all parts and all facts."),
        click.option("--json", "form", flag_value="json", help="Write JSON: docs/diff.md."),
        click.option(
            "--markdown", "form", flag_value="markdown", help="Write a pull-request comment."
        ),
        click.option(
            "--html",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write a page for a browser, one file.",
        ),
        click.option(
            "--length",
            type=click.IntRange(min=1),
            metavar="N",
            help="Tokens of a sequence that the figures are for; by default what all models take.",
        ),
        click.option(
            "--layout",
            "layouts",
            multiple=True,
            metavar="LAYOUT",
            help='Also show the weights per rank at a layout: "tp8 dp4". May be repeated.',
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="config.FIELD=VALUE",
            help="Set a field in every config. May be repeated.",
        ),
        click.option("--no-color", is_flag=True, help="Colour nothing; so does NO_COLOR=1."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def layouts_of(texts: Sequence[str]) -> tuple[Degrees, ...]:
    """The layouts of `--layout`, each once.

    Raises `SpecError`: SP690 for a text that is none.
    """
    from specc.compiler.diagnostics import fail
    from specc.runtime.layouts import parse_layouts
    from specc.runtime.refusal import Refusal

    found: list[Degrees] = []
    for text in texts:
        try:
            found += parse_layouts(text)
        except Refusal as refusal:
            reason = str(refusal).removeprefix("--layouts: ").removesuffix(".")
            fail("SP690", f"--layout: {reason}", help='write it as for `specc verify`: "tp8 dp4"')
    return tuple(dict.fromkeys(found))


def models_of(
    sources: Sequence[Source],
    names: Sequence[str],
    length: int | None,
    layouts: Sequence[Degrees],
) -> list[Model]:
    """Run the pages of sources and read what they are.

    Without a `length` the figures of all are for sequences of the longest that all take, so that
    they can be compared.
    """
    from specc.compiler.architecture.figures import figures
    from specc.compiler.architecture.read import read
    from specc.compiler.architecture.run import run_page
    from specc.compiler.render.model import Model

    named = list(zip(sources, names, strict=True))
    runs = [run_page(source.page_text, name, length=length) for source, name in named]
    common = min(run.length for run in runs)
    return [
        Model(
            name,
            source.origin,
            read(run),
            figures(
                run if run.length == common else run_page(source.page_text, name, length=common),
                layouts=layouts,
            ),
        )
        for (source, name), run in zip(named, runs, strict=True)
    ]


def short_names(names: Sequence[str]) -> list[str]:
    """`llama` for `models/llama_spec.py`, `HEAD~3:llama` for `HEAD~3:models/llama.py`; the names as
    they are where that does not tell them apart.

    A spec's own name tells two of one file apart.
    """
    short = [_short(name) for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def _short(name: str) -> str:
    before, colon, place = name.rpartition(":")
    if not place.endswith((".py", ".yaml", ".yml")):
        return place
    return f"{before}{colon}{Path(place).stem.removesuffix('_spec')}"  # with its revision
