"""A model of transformers, imported: its config by its JSON, its tensors by the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specc.huggingface.map_file import map_path, map_text
from specc.huggingface.plan import Imported
from specc.huggingface.read import read_config
from specc.huggingface.spec_text import spec_text
from specc.huggingface.tensors import Part
from specc.runtime import parameter_table
from specc.templates import ModuleSpec

# A page by hand: a file that builds the spec, where a test is not about compiling.
_PAGE = """

from dataclasses import dataclass

LOSS = "per_token"


@dataclass(frozen=True)
class Config:
    max_position_embeddings: int = {length}


def build_model(mesh, config=Config(), *, seed=0, device="cpu"):
    return model.build_module(mesh=mesh, seed=seed, device=device)
"""


@dataclass(frozen=True)
class Ours:
    """What the import makes of a config."""

    values: dict[str, Any]
    imported: Imported
    text: str

    @cached_property
    def spec(self) -> ModuleSpec:
        return spec_of(self.text)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        table = parameter_table(self.spec.build_module(device="meta"))
        return {name: record.shape for name, record in table.items() if record.tied_to is None}

    def translated(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their tensors under our names and in our layout."""
        table, found = self.imported.table, {}

        def read(part: Part) -> Tensor:
            return theirs[part.name] if part.row is None else theirs[part.name][part.row]

        for name, place in table.places(self.shapes).items():
            pieces = list(place.ours(read, table.numbers))
            found[name] = torch.stack(pieces) if place.stacked else pieces[0]
            assert found[name].shape == self.shapes[name], name
        return found

    def page(self, folder: Path) -> Path:
        """A page by hand, and the map beside it."""
        page = folder / "model.py"
        page.write_text(
            self.text + _PAGE.format(length=self.imported.config.max_position_embeddings)
        )
        map_path(page).write_text(map_text(self.imported.table, self.values))
        return page


def bring_in(theirs: Any) -> Ours:
    """By the text of the config and the text of the spec, as the command does."""
    values = json.loads(theirs.config.to_json_string())
    values["architectures"] = [type(theirs).__name__]
    imported = read_config(values)
    return Ours(values, imported, spec_text(imported.plan, "model", "A model."))


def spec_of(text: str) -> ModuleSpec:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    spec: ModuleSpec = namespace["model"]
    return spec
