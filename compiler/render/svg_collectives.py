"""Which collectives a part's forward has at a layout, from how its weights are cut.

The rules are those of the tables in the docstrings of the runtime's parallel layers, and of
`specc.runtime.communication`, which counts them: a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from specc.runtime.layouts import Degrees

from ..architecture.tree import Part
from .svg_items import Marks

_ROUND = {
    "all_gather": ("all-gather k, v over cp{cp}",),
    "p2p": ("k, v round the ring of cp{cp}",),
    "a2a": ("all-to-all q, k, v over cp{cp}", "all-to-all y over cp{cp}"),
}


def marks(part: Part, layout: Degrees | None) -> Marks:
    """Of a part that is drawn as one block: its own collectives and those of what is in it."""
    if layout is None:
        return Marks()
    entry: list[str] = []
    during: list[str] = []
    exit: list[str] = []
    for _, times, below in part.walk():
        if below.kind == "attention" and below.fact("heads") and layout.cp > 1:
            during += [text.format(cp=layout.cp) for text in _ROUND[layout.cp_comm_type]]
        if layout.tp > 1:
            found = _of_weight(below, layout)
            entry += found.entry * times
            exit += found.exit * times
    return Marks(_counted(entry), _counted(during), _counted(exit))


def _of_weight(part: Part, layout: Degrees) -> Marks:
    """Over tp, of a layer whose weight is cut by output features or vocabulary (dimension 0), or by
    input features (1).
    """
    cuts = {weight.cut for weight in part.weights if len(weight.shape) == 2}
    over = f"over tp{layout.tp}"
    reduction = f"{'reduce-scatter' if layout.sequence_parallel else 'all-reduce'} {over}"
    if part.kind == "embedding" and 0 in cuts:
        return Marks(exit=(reduction,))
    if part.kind in ("linear", "output") and 1 in cuts:
        return Marks(exit=(reduction,))
    if part.kind in ("linear", "output") and 0 in cuts:
        return Marks(
            entry=(f"all-gather {over}",) if layout.sequence_parallel else (),
            exit=(f"all-gather {over}",) if part.fact("gather_output") else (),
        )
    return Marks()


def _counted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{n} × {text}" if n > 1 else text for text, n in Counter(texts).items())


def legend(layout: Degrees, marked: bool) -> list[str]:
    """Sentences below a drawing: what the marks are, and what FSDP does, which no block shows."""
    said = [f"At {layout}. Shapes and parameters are of the whole model, before any cut."]
    if marked:
        said.append(
            "Marks are the forward's collectives; the backward has the adjoint of each: "
            "of all-gather reduce-scatter, of all-reduce all-reduce."
        )
    if layout.stage:
        gathers = {
            3: "each layer's weights are gathered before its forward and its backward, "
            "its gradients reduce-scattered after",
            2: "weights are gathered once a step, gradients reduce-scattered after each backward",
            1: "weights are gathered and gradients reduce-scattered once a step",
        }[layout.stage]
        said.append(f"FSDP, ZeRO-{layout.stage}: {gathers}.")
    return said
