"""One stage of a model: what stays of a whole one that was built without memory.

The whole model is built on every rank, so that there is one table of its parameters; then what
other stages hold is taken out. Names stay, and what is absent is not there at all: a forward that
touches it raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from .mesh import Mesh
from .parameters import ParameterRecord, Table, parameter_table
from .pipeline_balance import by_cost, by_hand
from .stage_parts import StageParts, set_stage_parts

_TABLE = "_parameter_table"


@dataclass(frozen=True)
class CutPlaces:
    """Where a page says that it can be cut: its LAYERS, FIRST_STAGE and LAST_STAGE.

    ``layers`` are names of module lists. The elements of those that stand under no name of
    ``first`` and ``last`` are shared out over the stages, in order. ``first`` and ``last`` name
    modules or parameters; one that stands in both is on both stages.
    """

    layers: tuple[str, ...]
    first: tuple[str, ...]
    last: tuple[str, ...]


@dataclass(frozen=True)
class Stages:
    """``seats[stage]`` is the rank of pp that has the stage; ``layers``: how many each stage gets,
    None for a cut by cost. ``active``: the part of an expert's weights that a token meets."""

    seats: tuple[int, ...]
    layers: tuple[int, ...] | None = None
    active: float = 1.0


def keep_stage(model: nn.Module, places: CutPlaces, stages: Stages, mesh: Mesh) -> None:
    """Takes out of ``model``, whole and without memory, what is not ``mesh.stage``'s.

    Its table of parameters is then that of the stage, by the whole model's canonical names, and
    ``stage_parts`` says what the others hold. Raises ValueError where a name of ``places`` is not
    there, a parameter belongs to no stage or to several that are not the first and the last, or
    layers and stages do not fit.
    """
    table = parameter_table(model)
    elements = _shared_out(model, places)
    count = len(stages.seats)
    if stages.layers is None:
        costs, first, last = _costs(table, elements, places, model, stages.active)
        shares = by_cost(costs, count, first, last)
    else:
        shares = by_hand(stages.layers, len(elements), count)
    stage_of: dict[str, set[int]] = {}  # by name of a module or parameter
    position = 0
    for stage, share in enumerate(shares):
        for name in elements[position : position + share]:
            stage_of.setdefault(name, set()).add(stage)
        position += share
    for names, stage in ((places.first, 0), (places.last, count - 1)):
        for name in names:
            stage_of.setdefault(name, set()).add(stage)

    homes = {name: _home(name, stage_of) for name in table}
    holders = _holders(table, homes, stages.seats)
    for name, where in stage_of.items():
        if mesh.stage not in where:
            _remove(model, name)
    _keep_table(model, table, homes, mesh.stage, StageParts(table, holders))


def _shared_out(model: nn.Module, places: CutPlaces) -> list[str]:
    """The names of the elements that stages share out."""
    fixed = (*places.first, *places.last)
    for name in fixed:
        owner, _, own = name.rpartition(".")
        if not _there(model, owner) or not hasattr(model.get_submodule(owner), own):
            raise ValueError(f"FIRST_STAGE or LAST_STAGE of the page names {name}: it has none")
    found: list[str] = []
    for path in places.layers:
        if not _there(model, path) or not isinstance(model.get_submodule(path), nn.ModuleList):
            raise ValueError(f"LAYERS of the page names {path}, which is no nn.ModuleList")
        if not any(_under(path, name) for name in fixed):
            # One layer at two places stands there twice.
            found += [f"{path}.{name}" for name in model.get_submodule(path)._modules]
    return found


def _there(model: nn.Module, path: str) -> bool:
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def _under(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}.")


def _home(name: str, stage_of: Mapping[str, set[int]]) -> set[int]:
    """The stages that hold what stands under this name."""
    found: set[int] = set()
    for place, where in stage_of.items():
        if _under(name, place):
            found |= where
    if not found:
        raise ValueError(
            f"parameter {name} belongs to no stage: it stands in none of the page's LAYERS, and "
            "FIRST_STAGE and LAST_STAGE do not name it"
        )
    return found


def _holders(
    table: Table, homes: Mapping[str, set[int]], seats: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    stages: dict[str, set[int]] = {}
    for name, record in table.items():
        stages.setdefault(record.tied_to or name, set()).update(homes[name])
    ends = {0, len(seats) - 1}
    for name, where in stages.items():
        if len(where) > 1 and where != ends:
            raise ValueError(
                f"parameter {name} is one of stages {', '.join(map(str, sorted(where)))}; only the "
                "first stage and the last may share a parameter"
            )
    return {
        name: tuple(sorted({seats[stage] for stage in where})) for name, where in stages.items()
    }


def _remove(model: nn.Module, name: str) -> None:
    owner, _, own = name.rpartition(".")
    if not _there(model, owner):
        return  # went with what it stood in
    module = model.get_submodule(owner)
    module._modules.pop(own, None)
    module._parameters.pop(own, None)


def _keep_table(
    model: nn.Module,
    whole: Table,
    homes: Mapping[str, set[int]],
    stage: int,
    parts: StageParts,
) -> None:
    table: Table = {}
    held: dict[str, str] = {}
    for name, record in whole.items():
        if stage not in homes[name]:
            continue
        canonical = record.tied_to or name
        if canonical != name and canonical not in table:
            table[canonical] = replace(record, tied_to=None)
            held[canonical] = name
        table[name] = record
    model.__dict__[_TABLE] = table
    set_stage_parts(model, parts, held)


def _costs(
    table: Table, elements: Sequence[str], places: CutPlaces, model: nn.Module, active: float
) -> tuple[list[float], float, float]:
    """What each element, the first stage's and the last's own parts cost, in products for a token.

    A weight costs one for each entry, and a looked-up table one row. What attention does with its
    scores is not counted: it is alike in all layers, and small for sequences that are short against
    the width.
    """

    def cost(place: str) -> float:
        return sum(
            _products(model, name, record, active)
            for name, record in table.items()
            if _under(name, place)
        )

    return (
        [cost(name) for name in elements],
        sum(map(cost, places.first)),
        sum(map(cost, places.last)),
    )


def _products(model: nn.Module, name: str, record: ParameterRecord, active: float) -> float:
    size = 1.0
    for length in record.shape:
        size *= length
    owner = model.get_submodule(name.rpartition(".")[0])
    if hasattr(owner, "num_embeddings"):
        size /= record.shape[0]
    return size if record.expert_dim is None else size * active
