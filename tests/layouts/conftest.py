"""Pages, and what each one computes in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from layout_pages import PAGES, ROUTED
from layout_step import SHAPE, Alone, page_of

from specc.runtime import Mesh
from specc.runtime.one_step import Case, alone


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``page_file("llama")``: compiled when first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def compiled(name: str) -> Path:
        file = folder / f"{name}.py"
        file.write_text((PAGES | ROUTED)[name](folder))
        return file

    return compiled


@pytest.fixture(scope="session", name="alone")
def alone_(
    page_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Alone]:
    """``alone("llama")``, in another dtype, accumulation or of packed documents."""
    folder = tmp_path_factory.mktemp("alone")

    @cache
    def run(
        name: str,
        dtype: torch.dtype = torch.float32,
        accumulation: int = 1,
        packed: bool = False,
    ) -> Alone:
        page = page_of(str(page_file(name)))
        case = Case(accumulation=accumulation, packed=packed)
        values, step = alone(page, page.config(), case, SHAPE, Mesh.single(dtype))
        file = folder / f"{name} {dtype} {case}.pt"
        torch.save({"values": values, "step": step}, file)
        return Alone(str(page.path), str(file), packed)

    return run
