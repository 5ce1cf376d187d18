"""A page's parameters, without memory for any, and what has to hold between page and table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specc.runtime import Mesh
from specc.runtime.checkpoint_plan import model_tensors
from specc.runtime.page import Page, load_page
from specc.runtime.refusal import Refusal

from .map_file import MapFile, map_path, read_map
from .tensors import Place


@dataclass(frozen=True)
class PageModel:
    """A page, its map, and for each parameter its global shape and its place in the table."""

    page: Page
    map: MapFile
    shapes: dict[str, tuple[int, ...]]
    places: dict[str, Place]


def open_model(page: Path, map: Path | None) -> PageModel:
    """Raises Refusal where page or map cannot be read, or a parameter has no row in the map."""
    loaded = load_page(page)
    found = read_map(map or map_path(page))
    model = loaded.build(Mesh.single(), loaded.config(), device="meta")
    shapes = {name: tuple(record.shape) for name, (_, record) in model_tensors(model).items()}
    try:
        places = found.table.places(shapes)
    except KeyError as error:
        raise Refusal(f"{found.path} has no row for {error.args[0]} of {page}.") from None
    return PageModel(loaded, found, shapes, places)
