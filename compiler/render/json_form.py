"""A difference or a model as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..architecture.difference import Change, Difference, FactChange
from ..architecture.figure import Figure
from ..architecture.tree import Part, Value, Weight
from ..architecture.words import words
from .code_lines import CodeBlock
from .figure_rows import merged
from .json_fields import (
    SCHEMA_VERSION,
    BlockJson,
    DiffJson,
    EditJson,
    FactJson,
    FigureChangeJson,
    ModelJson,
    PartJson,
    ShowJson,
    SideJson,
    WeightJson,
)
from .model import Comparison, Model
from .told import Told


@dataclass(frozen=True)
class _Place:
    """Where a part stands in its model: `times` modules of it, in all."""

    path: str = ""
    times: int = 1

    def below(self, part: Part | None) -> _Place:
        if part is None:
            return self
        path = f"{self.path}.{part.segment}" if self.path else part.segment
        return _Place(path, self.times * part.times)


def json_diff(comparison: Comparison, *, everything: bool = False) -> str:
    """The edits that make the second model of the first; with `everything` also what is kept."""
    difference = comparison.difference
    told: DiffJson = {
        "schema_version": SCHEMA_VERSION,
        "before": _model(comparison.before),
        "after": _model(comparison.after),
        "same": difference.empty,
        "edits": list(_edits(difference, everything)),
        "config": [_fact(fact) for fact in difference.config],
        "figures": _figure_changes(comparison.before.figures, comparison.after.figures),
        "code": [_block(block) for block in comparison.code],
    }
    return _text(told)


def json_show(model: Model) -> str:
    """The whole tree of a model."""
    architecture = model.architecture
    told: ShowJson = {
        "schema_version": SCHEMA_VERSION,
        "model": _model(model),
        "tree": _part(architecture.root, _Place()),
        "config": {name: _value(value) for name, value in architecture.config},
        "figures": [
            {"name": f.name, "label": f.label, "unit": f.unit, "value": f.value, "note": f.note}
            for f in model.figures
        ],
    }
    return _text(told)


def _text(told: DiffJson | ShowJson) -> str:
    return json.dumps(told, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _model(model: Model) -> ModelJson:
    return {"name": model.name, "origin": model.origin}


def _edits(difference: Difference, everything: bool) -> Iterator[EditJson]:
    def of(change: Change, told: Told, was: _Place, now: _Place) -> Iterator[EditJson]:
        if everything or change.kind != "same":
            yield {
                "kind": change.kind,
                "path": change.path,
                "before": _side(change.before, was) if change.before else None,
                "after": _side(change.after, now) if change.after else None,
                "facts": [_fact(fact) for fact in change.facts],
                "follows": sorted(told.explained(change)),
                "steps": list(change.steps),
            }
        for child in change.children:
            below = told.below(change), was.below(child.before), now.below(child.after)
            yield from of(child, *below)

    yield from of(difference.root, Told.of(difference), _Place(), _Place())


def _side(part: Part, place: _Place) -> SideJson:
    return {
        "path": place.path,
        "times": place.times,
        "name": part.name,
        "kind": part.kind,
        "label": part.label,
        "words": words(part),
        "facts": {name: _value(value) for name, value in part.facts},
        "weights": [_weight(weight) for weight in part.weights],
        "parameters": part.parameters,
    }


def _part(part: Part, place: _Place) -> PartJson:
    return {
        **_side(part, place),
        "indices": list(part.indices),
        "operations": list(part.operations),
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "shape": list(edge.shape),
                "residual": edge.residual,
            }
            for edge in part.edges
        ],
        "children": [_part(child, place.below(child)) for child in part.children],
    }


def _weight(weight: Weight) -> WeightJson:
    return {
        "name": weight.name,
        "shape": list(weight.shape),
        "cut": weight.cut,
        "tied_to": weight.tied_to,
    }


def _fact(fact: FactChange) -> FactJson:
    return {"name": fact.name, "before": _value(fact.before), "after": _value(fact.after)}


def _value(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _figure_changes(before: Sequence[Figure], after: Sequence[Figure]) -> list[FigureChangeJson]:
    firsts, seconds = {f.name: f for f in before}, {f.name: f for f in after}
    told: list[FigureChangeJson] = []
    for name in merged([*firsts], [*seconds]):
        first, second = firsts.get(name), seconds.get(name)
        either = second or first
        assert either is not None  # a name comes from one of the two
        told.append(
            {
                "name": name,
                "label": either.label,
                "unit": either.unit,
                "before": first.value if first else None,
                "after": second.value if second else None,
                "note_before": first.note if first else "",
                "note_after": second.note if second else "",
            }
        )
    return told


def _block(block: CodeBlock) -> BlockJson:
    return {
        "name": block.name,
        "lines": [
            {"sign": line.sign, "before": line.before, "after": line.after, "text": line.text}
            for line in block.lines
        ],
    }
