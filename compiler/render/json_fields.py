"""The fields of the JSON forms; docs/diff.md says what each is, and a test holds the two equal.

What is here stays: a later version only adds fields, and counts `SCHEMA_VERSION` up where it has to
change one.
"""

from __future__ import annotations

from typing import Any, TypedDict

SCHEMA_VERSION = 1


class ModelJson(TypedDict):
    name: str
    origin: str


class FactJson(TypedDict):
    name: str
    before: Any
    after: Any


class WeightJson(TypedDict):
    name: str
    shape: list[int]
    cut: int | None
    tied_to: str | None


class SideJson(TypedDict):
    path: str
    times: int
    name: str
    kind: str
    label: str
    words: str
    facts: dict[str, Any]
    weights: list[WeightJson]
    parameters: int


class EditJson(TypedDict):
    kind: str
    path: str
    before: SideJson | None
    after: SideJson | None
    facts: list[FactJson]
    follows: list[str]
    steps: list[str]


class FigureChangeJson(TypedDict):
    name: str
    label: str
    unit: str
    before: int | None
    after: int | None
    note_before: str
    note_after: str


class LineJson(TypedDict):
    sign: str
    before: int | None
    after: int | None
    text: str


class BlockJson(TypedDict):
    name: str
    lines: list[LineJson]


class DiffJson(TypedDict):
    schema_version: int
    before: ModelJson
    after: ModelJson
    same: bool
    edits: list[EditJson]
    config: list[FactJson]
    figures: list[FigureChangeJson]
    code: list[BlockJson]


class EdgeJson(TypedDict):
    source: str
    target: str
    shape: list[str]
    residual: bool


class PartJson(SideJson):
    indices: list[int]
    operations: list[str]
    edges: list[EdgeJson]
    children: list[Any]


class FigureJson(TypedDict):
    name: str
    label: str
    unit: str
    value: int | None
    note: str


class ShowJson(TypedDict):
    schema_version: int
    model: ModelJson
    tree: PartJson
    config: dict[str, Any]
    figures: list[FigureJson]
