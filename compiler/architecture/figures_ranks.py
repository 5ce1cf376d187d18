"""The weights per rank at layouts, as figures."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from specc.runtime.layouts import Degrees
from specc.runtime.page import cut_places
from specc.runtime.pipeline_build import active_share
from specc.templates.diagnostic import SpecError

from .figure import Figure
from .rank_weights import Cut, RankWeights, rank_weights
from .run import Run, build, opened_page

_HELD = "float32, with padding"


def rank_figures(run: Run, layouts: Sequence[Degrees]) -> list[Figure]:
    """Two for each layout, and one for each stage of a pipeline. A layout that the model cannot be
    cut for has the layers' own reason.
    """
    if not layouts:
        return []
    with opened_page(run.page_text, run.name) as page:
        return [figure for degrees in layouts for figure in _figures(page, run, degrees)]


def _figures(page: Any, run: Run, degrees: Degrees) -> list[Figure]:
    held, note = _weights(page, run, degrees)
    count, size = (held.parameters, held.bytes) if held else (None, None)
    name = f"weights.{degrees}"
    found = [
        Figure(f"{name}.parameters", f"weights per rank at {degrees}", count, note=note),
        Figure(f"{name}.bytes", "bytes", size, "bytes", 1, note),
    ]
    for number, stage in enumerate(held.stages if held else ()):
        layers = f"{stage.layers} layer{'s' if stage.layers != 1 else ''}"
        label = f"of stage {number}"
        found.append(Figure(f"{name}.stage{number}", label, stage.parameters, "", 1, layers))
    return found


def _weights(page: Any, run: Run, degrees: Degrees) -> tuple[RankWeights | None, str]:
    """What the fullest rank holds, and a note on it; or why that is not known."""
    if "mesh" not in inspect.signature(page.build_model).parameters:
        return None, "its `build_model` takes no mesh: it is a model for one process"
    _, places = cut_places(page)
    if degrees.pp > 1 and places is None:
        return None, getattr(page, "NO_STAGES", "the page does not say where it can be cut")
    cut = None if places is None else Cut(places, active_share(run.config))
    try:
        return rank_weights(lambda mesh: build(page, run.name, mesh)[0], degrees, cut), _HELD
    except SpecError as error:
        # A layer that cannot be cut says so in one sentence.
        layer = error.__context__
        said = isinstance(layer, ValueError | NotImplementedError)
        return None, str(layer) if said else error.diagnostics[0].message
    except ValueError as error:
        return None, str(error)
