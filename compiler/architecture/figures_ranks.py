"""The weights per rank at layouts, as figures."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from specc.runtime.layouts import Degrees
from specc.templates.diagnostic import SpecError

from .figure import Figure
from .rank_weights import RankWeights, rank_weights
from .run import Run, build, opened_page


def rank_figures(run: Run, layouts: Sequence[Degrees]) -> list[Figure]:
    """Two for each layout. A layout that the model cannot be cut for has the layers' own reason."""
    if not layouts:
        return []
    found = []
    with opened_page(run.page_text, run.name) as page:
        for degrees in layouts:
            held, note = _held(page, run.name, degrees)
            count, size = (held.parameters, held.bytes) if held else (None, None)
            label = f"weights per rank at {degrees}"
            found += [
                Figure(f"weights.{degrees}.parameters", label, count, note=note),
                Figure(f"weights.{degrees}.bytes", "bytes", size, "bytes", 1, note),
            ]
    return found


def _held(page: Any, name: str, degrees: Degrees) -> tuple[RankWeights | None, str]:
    """What the fullest rank holds, and a note on it; or why that is not known."""
    if "mesh" not in inspect.signature(page.build_model).parameters:
        return None, "its `build_model` takes no mesh: it is a model for one process"
    try:
        held = rank_weights(lambda mesh: build(page, name, mesh)[0], degrees)
    except NotImplementedError as error:
        return None, str(error)
    except SpecError as error:
        # A layer that cannot be cut says so in one sentence.
        layer = error.__context__
        cut = isinstance(layer, ValueError | NotImplementedError)
        return None, str(layer) if cut else error.diagnostics[0].message
    return held, "float32, with padding"
