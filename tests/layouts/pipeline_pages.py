"""Pages of more layers than a pipeline has stages."""

from __future__ import annotations

from pathlib import Path

from layout_pages import PAGES

LAYERS = {"llama": 9, "gpt2": 8}  # 9: no number of stages shares them out evenly


def written(folder: Path, name: str) -> Path:
    """The page in a file of ``folder``."""
    text = PAGES[name](folder)
    text = text.replace("num_layers: int = 2", f"num_layers: int = {LAYERS[name]}")
    file = folder / f"{name}_pipeline.py"
    file.write_text(_with_stages(text))
    return file


def _with_stages(text: str) -> str:
    """The page as the compiler writes it once templates say where stages begin and end."""
    if "FIRST_STAGE" in text:
        return text
    said = """LAYERS = "decoder.layers"
FIRST_STAGE = ("embedding",)
LAST_STAGE = ("decoder.final_layernorm", "output_layer")
LOSS = """
    return text.replace("LOSS = ", said, 1)
