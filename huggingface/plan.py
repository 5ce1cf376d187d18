"""What a family makes of a config: the fields, the parts and the tensors of our model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specc.templates import TransformerConfig

from .fields import Fields
from .tensors import Row, Table


class Written(float):
    """A number that a spec has as an expression: the root of the width."""

    text: str

    def __new__(cls, value: float, text: str) -> Written:
        found = super().__new__(cls, value)
        found.text = text
        return found


@dataclass(frozen=True)
class Part:
    """A module of the spec: the name of its class in specc.templates, and its children."""

    module: str
    children: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A model of ours.

    ``config``: what TransformerConfig is called with. ``layer``, ``moe_layer``: the kinds of
    layers; where there are both, `moe_layer_freq` in ``config`` deals them out.
    ``stack``: the layers of a hybrid stack instead, by the slot of HybridStack. ``mixer``: what the
    layouts need to know of its mixer.
    """

    config: Mapping[str, Any]
    final_norm: Part
    layer: Part | None
    rows: tuple[Row, ...]
    moe_layer: Part | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    stack: Mapping[str, Part] = field(default_factory=dict)
    mixer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One or several `model_type`s that are read alike.

    ``architectures``: the classes whose configs these are. ``defaults``: what the class of the
    config gives to fields that a file leaves out. ``limits``: what of the family is refused.
    ``in_transformers``: the classes are those of the package, so that tests compare with them.
    """

    model_type: str
    title: str
    architectures: tuple[str, ...]
    defaults: Mapping[str, Any]
    read: Callable[[Fields], Plan]
    limits: str = ""
    in_transformers: bool = True


@dataclass(frozen=True)
class Imported:
    """A config, read: every field of it was used, or is known to say nothing of the model."""

    family: Family
    plan: Plan
    config: TransformerConfig
    table: Table
