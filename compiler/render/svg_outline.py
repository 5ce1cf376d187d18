"""From an architecture's parts to what is drawn: which of them is a block, a frame, a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specc.runtime.layouts import Degrees

from ..architecture.tree import Architecture, Edge, Part
from ..architecture.words import headline, whole_words, words
from .segment import shortened
from .svg_collectives import marks
from .svg_items import INSIDE, THIN, Block, Frame, Link
from .svg_stack import stack
from .svg_text import clean

# One block each, whatever is in it: its words say that.
_WHOLE = frozenset({"attention", "mixer", "mlp", "linear", "router"}) | THIN
_TITLES = {
    "attention": "Attention",
    "mixer": "Mixer",
    "mlp": "MLP",
    "linear": "Linear",
    "embedding": "Embedding",
    "output": "Output",
    "router": "Router",
}
_TOLD = ("linear", "convolution", "router part")  # by the words of what they stand in
_CHILDREN = 40  # of one frame; a drawing with more is no drawing


def outline(architecture: Architecture, layout: Degrees | None) -> Frame:
    """The whole drawing: a frame without a box."""
    maker = _Maker(layout)
    root = architecture.root
    frame = maker.frame(root, "", "")
    if not frame.children:
        frame = replace(frame, children=(maker.block(root, "", ""),))
    said = ", ".join(filter(None, (clean(words(root)), frame.words)))
    return replace(
        frame, kind="model", title=clean(architecture.name), name=clean(root.label), words=said
    )


@dataclass(frozen=True)
class _Maker:
    layout: Degrees | None

    def item(self, part: Part, path: str, name: str) -> Block:
        """A part as a block, or as a frame; one that only wraps another is that other."""
        groups = _groups(part)
        if not groups or _whole(part):
            return self.block(part, path, name)
        if len(groups) == 1 and not (part.weights or _adds(part) or part.kind == "layer"):
            return self.group(groups[0], path, f"{name}.")
        return self.frame(part, path, name)

    def block(self, part: Part, path: str, name: str) -> Block:
        said = clean(", ".join(filter(None, (whole_words(part), _inside(part)))))
        title = _TITLES.get(part.kind, clean(part.label))
        if part.kind == "mlp" and part.fact("experts") is not None:
            title = "Experts"
        if part.kind in THIN:
            title, said = clean(headline(part)) or title, ""
        return Block(
            part.kind,
            title,
            words=said if said.casefold() != title.casefold() else "",
            name=clean(name),
            parameters=(part.parameters, part.parameters),
            times=part.times,
            paths=(path,),
            marks=marks(part, self.layout),
        )

    def frame(self, part: Part, path: str, name: str) -> Frame:
        groups = _groups(part)
        children = [self.group(group, path, "") for group in groups]
        place = {child.segment: i for i, group in enumerate(groups) for child in group}
        links = _links(part.edges, place)
        if part.kind not in ("model", "layer"):  # the line outside says what comes in
            links = tuple(replace(k, label="") if k.source == INSIDE else k for k in links)
        own = ", ".join(
            (
                *([headline(part)] if part.kind == "moe" else ()),
                *([str(part.fact("runs"))] if part.fact("runs") else ()),
                *(
                    f"{w.name} {' × '.join(map(str, w.shape))}"
                    for w in part.weights
                    if not w.tied_to
                ),
            )
        )
        if len(children) > _CHILDREN:
            children, links = _elided(children, links)
        return Frame(
            "layer" if part.kind == "layer" else "module",
            clean(part.label),
            words=clean(own),
            name=clean(name),
            parameters=(part.parameters, part.parameters),
            times=part.times,
            paths=(path,),
            children=tuple(children),
            links=links,
        )

    def group(self, parts: Sequence[Part], path: str, prefix: str) -> Block:
        """A child, or the layers of one list."""
        made = [
            self.item(
                part,
                f"{path}.{part.segment}" if path else part.segment,
                prefix + shortened(part.segment),
            )
            for part in parts
        ]
        if len(parts) == 1:
            return made[0]
        return stack(parts, made, prefix)


def _whole(part: Part) -> bool:
    """Whether a part is one block. With a residual stream of its own it is more than its kind."""
    return part.kind in _WHOLE and not _adds(part)


def _adds(part: Part) -> bool:
    return any(edge.residual for edge in part.edges)


def _inside(part: Part) -> str:
    """What a part that is drawn whole has beside linear layers: `RMSNorm on q_norm, k_norm`."""
    found: dict[str, list[str]] = {}
    for child in part.children:
        if child.kind not in (*_TOLD, part.kind) and _whole(part):
            found.setdefault(headline(child) or child.label, []).append(shortened(child.segment))
    return "; ".join(f"{what} on {', '.join(names)}" for what, names in found.items())


def _groups(part: Part) -> list[list[Part]]:
    """Children in order, those of one list together."""
    groups: list[list[Part]] = []
    lists: dict[str, list[Part]] = {}
    for child in part.children:
        if child.indices and child.name in lists:
            lists[child.name].append(child)
            continue
        groups.append([child])
        if child.indices:
            lists[child.name] = groups[-1]
    return groups


def _links(edges: Sequence[Edge], place: dict[str, int]) -> tuple[Link, ...]:
    """Edges by places; a shape is written where it changes, or where nothing said it before."""
    arriving: dict[int, tuple[str, ...]] = {}
    for edge in edges:
        if not edge.residual and edge.shape:
            arriving.setdefault(place.get(edge.target, INSIDE), edge.shape)
    found: dict[tuple[int, int, bool], Link] = {}
    for edge in edges:
        source, target = place.get(edge.source, INSIDE), place.get(edge.target, INSIDE)
        if source == target:
            continue  # from one layer of a list to the next
        changes = source == INSIDE or arriving.get(source) != edge.shape
        label = clean(f"[{', '.join(edge.shape)}]") if edge.shape and changes else ""
        key = (source, target, edge.residual)
        found.setdefault(key, Link(source, target, "" if edge.residual else label, edge.residual))
    return tuple(found.values())


def _elided(children: list[Block], links: Sequence[Link]) -> tuple[list[Block], tuple[Link, ...]]:
    """The first and the last children, and how many between."""
    head, tail = _CHILDREN // 2, _CHILDREN // 4
    left = children[head : len(children) - tail]
    count = sum(block.parameters[0] * block.times for block in left)
    more = Block("more", f"… {len(left):,} parts", parameters=(count, count),
                 paths=tuple(path for block in left for path in block.paths))  # fmt: skip
    kept = [*children[:head], more, *children[len(children) - tail :]]

    def place(old: int) -> int:
        return old if old < head else max(head, old - len(left) + 1)

    moved = [replace(link, source=place(link.source), target=place(link.target)) for link in links]
    return kept, tuple(dict.fromkeys(link for link in moved if link.source != link.target))
