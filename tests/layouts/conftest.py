"""Pages, and what each one computes in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from layout_pages import PAGES
from layout_step import Alone, Case, load_page, moved, step

from specc.runtime import Mesh, full_tensors


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Alone]:
    """``alone("llama")``, in another dtype or accumulation: made when first asked for."""
    folder: Path = tmp_path_factory.mktemp("alone")

    @cache
    def text(name: str) -> str:
        return PAGES[name](folder)

    @cache
    def run(name: str, dtype: torch.dtype = torch.float32, accumulation: int = 1) -> Alone:
        mesh = Mesh.single(dtype)
        page = load_page(text(name))
        values = moved(full_tensors(page.build_model(mesh), mesh))
        results = step(text(name), mesh, Case(accumulation=accumulation), values)
        file = folder / f"{name} {dtype} {accumulation}.pt"
        torch.save({"values": values, "results": results}, file)
        return Alone(text(name), str(file))

    return run
