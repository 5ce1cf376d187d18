"""The weights that a run begins with: of a checkpoint that was imported, or of another run."""

from __future__ import annotations

import json
from pathlib import Path

from . import checkpoint
from .refusal import Refusal


def initial_weights(source: Path, now: checkpoint.Facts) -> Path:
    """The checkpoint that --init names, of which the weights alone are taken.

    ``now``: what the run that begins would say of itself. Data, seed, length and schedule may be
    others; page, config and tokenizer may not. Raises Refusal where they are.
    """
    folder = checkpoint.find(source)
    saved = checkpoint.read_facts(folder)
    if saved.page != now.page:
        raise Refusal(
            f"--init {folder} was written with a page with body {saved.page}, and this one has "
            f"{now.page}."
        )
    here = json.loads(json.dumps(now.config))  # as it reads after a save
    for name in {**saved.config, **here}:
        if saved.config.get(name) != here.get(name):
            raise Refusal(
                f"--init {folder} was written with Config.{name} {saved.config.get(name)}, and "
                f"this run has {here.get(name)}."
            )
    if "unknown" not in (saved.tokenizer, now.tokenizer) and saved.tokenizer != now.tokenizer:
        raise Refusal(
            f"--init {folder} is of tokenizer {saved.tokenizer}, and the data is of "
            f"{now.tokenizer}: give --tokenizer {folder / 'tokenizer.json'}."
        )
    return folder
