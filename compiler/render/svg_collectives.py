"""Which collectives a part's forward has at a layout, from how its weights are cut.

The rules are those of the tables in the docstrings of the runtime's parallel layers, and of
`specc.runtime.communication`, which counts them: a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

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
        found = _of_experts(below, layout)
        entry, during, exit = [*entry, *found.entry], [*during, *found.during], [*exit, *found.exit]
        if below.kind == "attention" and below.fact("heads") and layout.cp > 1:
            during += [text.format(cp=layout.cp) for text in _ROUND[layout.cp_comm_type]]
        if below.kind == "mixer" and layout.cp > 1:
            ways = ("places to heads", "heads to places")
            during += [f"all-to-all {way} over cp{layout.cp}" for way in ways]
        if below.fact("shared") and layout.sequence_parallel:
            entry.append(f"all-gather over tp{layout.tp}")  # the keys' part that heads share
        if layout.tp > 1:
            found = _of_weight(below, layout)
            entry += found.entry * times
            exit += found.exit * times
    return Marks(_counted(entry), _counted(during), _counted(exit))


def _of_experts(part: Part, layout: Degrees) -> Marks:
    """Of experts, where the rows go over ep and etp and come back, and of what a router counts or
    drops of the whole micro-batch. The dispatcher is the runtime's default, "alltoall".
    """
    tokens = [f"{axis}{size}" for axis, size in (("tp", layout.tp), ("cp", layout.cp)) if size > 1]
    if part.kind == "router" and tokens and part.fact("capacity") is not None:
        return Marks(during=(f"all-gather choices over {' '.join(tokens)}",))
    if part.kind == "router part" and str(part.fact("type")).startswith("load balancing"):
        every = [f"dp{layout.dp}"] * (layout.dp > 1) + tokens
        over = every if str(part.fact("type")).endswith("global batch") else tokens
        return Marks(during=(f"all-reduce counts over {' '.join(over)}",) if over else ())
    if part.kind == "mlp" and part.fact("experts") is not None:
        over = [f"{a}{n}" for a, n in (("ep", layout.ep), ("etp", layout.expert_tp)) if n > 1]
        rows = tuple(f"all-to-all rows over {axis}" for axis in over)
        whole = layout.tp > 1 and not layout.sequence_parallel  # tokens were dealt out over tp
        return Marks(rows, exit=(*rows[::-1], *([f"all-gather over tp{layout.tp}"] * whole)))
    return Marks()


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


def legend(layout: Degrees, marked: Collection[str]) -> list[str]:
    """Sentences below a drawing: what the marks in it are, and what no block shows (a pipeline,
    FSDP).
    """
    said = [f"At {layout}. Shapes and parameters are of the whole model, before any cut."]
    if marked:
        adjoints = ["of all-gather reduce-scatter", "of all-reduce all-reduce"]
        if any("all-to-all" in mark for mark in marked):
            adjoints.append("of all-to-all the way back")
        if any("counts" in mark or "choices" in mark for mark in marked):
            adjoints.append("of counts and choices none")
        said.append(
            "Marks are the forward's collectives; the backward has the adjoint of each: "
            f"{', '.join(adjoints)}."
        )
    if layout.pp > 1:
        said.append(
            f"Pipeline of {layout.stages} stages: they share out the layers, and each sends the "
            "next one tensor."
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
