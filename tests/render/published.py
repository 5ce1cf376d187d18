"""Published models, each compiled and read once, by the names of their specs."""

from __future__ import annotations

import functools
from pathlib import Path

from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.read import read
from specc.compiler.architecture.run import run_page
from specc.compiler.render.model import Model
from specc.compiler.sources import open_source

FOLDERS = (
    Path(__file__).parents[1] / "architecture" / "published",
    Path(__file__).parents[2] / "generated_examples",
)


@functools.cache
def published(name: str) -> Model:
    """The model of `NAME_spec.py`."""
    source = open_source(str(next(_specs(name))))
    run = run_page(source.page_text, name)
    return Model(name, f"{name}_spec.py", read(run), figures(run))
