"""What a rank of a pipeline knows of the whole model, of which it holds some stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:  # which asks here where a parameter stands
    from .parameters import ParameterRecord

PAGE_LAYERS = "_page_layers"  # on a page's model: the lists that its LAYERS names
_PARTS, _HELD = "_stage_parts", "_held_names"


@dataclass(frozen=True)
class StageParts:
    """``table``: every parameter's record by name, as one process has it. ``holders``: the ranks of
    pp that hold a parameter, by its canonical name; two where the first stage and the last do."""

    table: Mapping[str, ParameterRecord]
    holders: Mapping[str, tuple[int, ...]]


def stage_parts(model: nn.Module) -> StageParts | None:
    """Of the model of a rank; None where there is no pipeline."""
    parts: StageParts | None = model.__dict__.get(_PARTS)
    return parts


def set_stage_parts(model: nn.Module, parts: StageParts, held: Mapping[str, str]) -> None:
    """``held``: of a tied parameter whose canonical name is another stage's, the name here."""
    model.__dict__[_PARTS] = parts
    model.__dict__[_HELD] = dict(held)


def held_parameter(model: nn.Module, name: str) -> nn.Parameter:
    """The parameter of this canonical name, which may stand under another of its names here."""
    held: Mapping[str, str] = model.__dict__.get(_HELD, {})
    return model.get_parameter(held.get(name, name))
