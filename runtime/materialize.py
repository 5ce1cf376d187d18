"""From a constructor to a model whose values follow from the seed and the names alone."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from .creation_log import ConstructorError, CreationLog, Entry, Place
from .initial_values import fill, name_key
from .mesh import Mesh
from .other_tensors import OtherTensors
from .parameters import (
    Constant,
    Normal,
    Table,
    canonical_parameters,
    local_part,
    local_tensor,
    parameter_table,
)
from .stage_parts import held_parameter
from .standalone import STANDALONE

M = TypeVar("M", bound=nn.Module)

_building: ContextVar[bool] = ContextVar("_building", default=False)


def materialize(
    build: Callable[[], M],
    mesh: Mesh,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    wrap: Callable[[M], object] | None = None,
) -> M:
    """Builds a model of this rank's parts and gives every parameter and buffer its value.

    ``build`` runs without computing or allocating anything. A parameter of one of our layers is
    then filled by a hash of (seed, canonical name, global index) under the law that its layer
    declares: bit-equal for any way to cut it. What other modules draw or compute in their
    constructors is repeated on CPU under a generator seeded by (seed, canonical name), so it does
    not depend on what was built before. The caller's generators stay as they were.

    ``wrap`` (``fully_shard``, in place) sees the model before it has memory, and may take parts out
    of it and of its table (a pipeline's other stages). The table of
    parameters stands on the model as ``_parameter_table``. On device "meta" nothing is allocated or
    filled. A ``materialize`` inside ``build`` only builds: the outer one does the rest.

    Raises ConstructorError, with the line, where a constructor reads a value that was drawn, draws
    from a generator of its own, or changes a layer's parameter in a way that no law states.
    """
    if STANDALONE or _building.get():
        return build()
    log = CreationLog()
    token = _building.set(True)
    try:
        with _undisturbed(), log:
            model = build()
    finally:
        _building.reset(token)

    old_names = {id(p): name for name, p in model.named_parameters()}
    held = list(model.parameters())  # so that no id is used twice
    _parameters_to_meta(model, log)
    table = parameter_table(model)
    places = {name: log.place(p) for name, _, p in canonical_parameters(model)}
    model.__dict__["_parameter_table"] = table = _with_written_laws(table, places, log)
    others = OtherTensors(model)
    if wrap is not None:
        wrap(model)
        # It may have taken out what other stages of a pipeline hold.
        table = parameter_table(model)
        places = {name: place for name, place in places.items() if name in table}
        old_names = {key: name for key, name in old_names.items() if name in table}
    if torch.device(device).type == "meta":
        return model

    model.to_empty(device=device)
    _tie(model, table)
    drawn = {name: place for name, place in places.items() if table[name].law is None}
    drawn |= {name: log.place(tensor) for name, tensor in others.named.items()}
    new: dict[int, Tensor] = {}
    for name, record, parameter in canonical_parameters(model):
        if record.law is not None:
            part, local = local_part(record, parameter, mesh), local_tensor(parameter)
            local.zero_()  # padding
            whole = part.valid(local)
            fill(whole, record.law, shape=record.shape, part=part, seed=seed, name=name)
    for name, value in _replayed(drawn, log, seed):
        if name in table:
            parameter = held_parameter(model, name)
            part = local_part(table[name], parameter, mesh)
            local_tensor(parameter).copy_(part.of(value))
        else:
            new[id(others.named[name])] = value.to(device)
    new |= {key: held_parameter(model, name) for key, name in old_names.items()}
    others.replace(new)
    del held
    return model


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keeps torch's generators, and notices draws that torch does not see."""
    before = _foreign_states()
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = [torch.cuda.current_device()] if cuda else []
    with torch.random.fork_rng(devices=devices):
        yield
    for name, state in _foreign_states().items():
        if state != before.get(name, state):
            raise ConstructorError(
                f"a constructor drew from {name}, whose state depends on what else was built; draw "
                "with torch, and the draw follows the run's seed"
            )


def _foreign_states() -> dict[str, object]:
    states: dict[str, object] = {"Python's random": random.getstate()}
    if "numpy" in sys.modules:  # whose `random` loads at its first use
        _, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy.random"] = (keys.tobytes(), rest)
    return states


def _parameters_to_meta(model: nn.Module, log: CreationLog) -> None:
    """Replaces parameters that are real (of a module built earlier) by their meta twins."""
    twins: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and not parameter.is_meta:
                if id(parameter) not in twins:
                    twin = nn.Parameter(log.meta(parameter), parameter.requires_grad)
                    twins[id(parameter)] = twin
                module._parameters[name] = twins[id(parameter)]


def _with_written_laws(table: Table, places: Mapping[str, Place], log: CreationLog) -> Table:
    """The table with the laws that constructors wrote over the layers' own.

    A layer's parameter is a cut of the whole, so of what a constructor does to it only a fill with
    one law (``nn.init.zeros_``, ``constant_``, ``normal_``) means the same at every tp.
    """
    table = dict(table)
    for name, record in table.items():
        canonical = record.tied_to or name
        if record.law is None:
            continue
        writers = log.writers(places[canonical])
        if len(writers) > 1:  # the first made it
            law = _law(writers[-1], places[canonical])
            if law is None:
                raise ConstructorError(
                    f"{writers[-1].line}: changes {canonical}, whose values its layer states so "
                    "that they are the same at every tp; use the layer's init_std, or fill it "
                    "whole with nn.init.normal_, constant_ or zeros_"
                )
            table[name] = replace(record, law=law)
    return table


def _law(entry: Entry, whole: Place) -> Normal | Constant | None:
    aten = torch.ops.aten
    if not entry.args or replace(entry.args[0], dtype=whole.dtype) != whole:
        return None
    if entry.func is aten.zero_.default:
        return Constant(0.0)
    if entry.func is aten.fill_.Scalar:
        return Constant(float(entry.args[1]))
    if entry.func is aten.normal_.default:
        given = dict(zip(("mean", "std"), entry.args[1:], strict=False)) | entry.kwargs
        return Normal(float(given.get("std", 1.0)), float(given.get("mean", 0.0)))
    return None


def _tie(model: nn.Module, table: Table) -> None:
    """Makes every further name of a parameter the parameter again: ``to_empty`` parts them."""
    for name, record in table.items():
        if record.tied_to is not None:
            owner, _, attribute = name.rpartition(".")
            parameter = held_parameter(model, record.tied_to)
            model.get_submodule(owner)._parameters[attribute] = parameter


def _replayed(
    drawn: Mapping[str, Place], log: CreationLog, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """Each name's value, repeated on CPU. Names that share a draw are repeated together."""
    needed = {name: log.needed([place]) for name, place in drawn.items()}
    group = {name: name for name in drawn}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    first: dict[int, str] = {}  # of each draw, a name that hangs on it
    for name, indices in needed.items():
        for index in indices:
            if log.entries[index].draws:
                a, b = sorted((root(name), root(first.setdefault(index, name))))
                group[b] = a  # the root is the alphabetically first, whatever was built first
    members: dict[str, list[str]] = defaultdict(list)
    for name in drawn:
        members[root(name)].append(name)
    for leader, names in members.items():
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(name_key(seed, leader))
            indices = sorted({index for name in names for index in needed[name]})
            values = log.replay(indices, [drawn[name] for name in names])
        yield from zip(names, values, strict=True)
