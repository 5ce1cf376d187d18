"""Pages of more layers than a pipeline has stages."""

from __future__ import annotations

from pathlib import Path

from layout_pages import PAGES

LAYERS = {"llama": 9, "gpt2": 8, "seed": 8, "user": 8}  # 9: stages cannot have equally many


def written(folder: Path, name: str) -> Path:
    """The page in a file of ``folder``."""
    text = PAGES[name](folder)
    for given in ("num_layers: int = 2", "num_layers=2"):
        text = text.replace(given, given.replace("2", str(LAYERS[name])))
    file = folder / f"{name}_pipeline.py"
    file.write_text(text)
    return file
