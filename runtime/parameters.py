"""What is known of every parameter: its global shape, how it is cut, how it starts.

The record stands on the module that made the parameter and, by qualified name, in a table on the
root. It does not stand on the Parameter: ``fully_shard``, ``to_empty`` and ``deepcopy`` all drop a
Parameter's attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .collectives import all_gather
from .mesh import Axis, Mesh
from .sharded import as_sharded
from .stage_parts import StageParts, held_parameter, stage_parts
from .standalone import STANDALONE


@dataclass(frozen=True)
class Normal:
    """Starts as draws from a normal distribution."""

    std: float
    mean: float = 0.0


@dataclass(frozen=True)
class Constant:
    """Starts as one number everywhere."""

    value: float


@dataclass(frozen=True)
class Uniform:
    """Starts as draws from [low, high).

    ``then`` "log": the logarithms of the draws. "step_size": the draws are logarithms of steps, and
    softplus of a parameter is its step.
    """

    low: float
    high: float
    then: str | None = None


Law = Normal | Constant | Uniform


@dataclass(frozen=True)
class ParameterRecord:
    """``shape`` is global, without padding. ``dim`` is cut over tp; None: every tp rank has it all.

    ``law`` None: not one of our layers', its constructor's own operations give the value.
    ``tied_to``: the canonical name, where this is a further name of a parameter.
    ``expert_dim``: the dimension that counts experts, which is cut over ep; such a parameter's
    ``dim`` is cut over etp, and whole copies of its parts are held over edp.
    """

    shape: tuple[int, ...]
    dim: int | None = None
    law: Law | None = None
    tied_to: str | None = None
    expert_dim: int | None = None


Table = dict[str, ParameterRecord]
LAYERS_AXES = ("tp", "ep", "etp")  # those over which layers cut their own parameters


@dataclass(frozen=True)
class Cut:
    """One rank's part of a dimension: ``size`` entries from ``offset``; ``valid`` of them exist."""

    offset: int
    size: int
    valid: int


@dataclass(frozen=True)
class LocalPart:
    """Where a local tensor's first ``extent`` entries lie in the global one. Padding follows."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]

    def of(self, full: Tensor) -> Tensor:
        """The view of the global tensor that this part is."""
        for dim, (start, length) in enumerate(zip(self.offset, self.extent, strict=True)):
            full = full.narrow(dim, min(start, full.shape[dim]), length)
        return full

    def valid(self, local: Tensor) -> Tensor:
        """The view of the local tensor that is not padding."""
        for dim, length in enumerate(self.extent):
            local = local.narrow(dim, 0, length)
        return local


def cut(size: int, parts: int, index: int) -> Cut:
    """Part ``index`` of ``size`` entries cut into ``parts`` of equal, rounded up size."""
    rows = -(-size // parts)
    return Cut(rows * index, rows, max(0, min(rows, size - rows * index)))


def axis_cut(size: int, axis: Axis) -> Cut:
    """This rank's part of ``size`` entries: padded when the axis does not divide them."""
    if axis.size == 1:
        return Cut(0, size, size)
    return cut(size, axis.size, axis.rank)


def cut_axes(record: ParameterRecord, mesh: Mesh) -> tuple[tuple[int, Axis], ...]:
    """Which dimension of a parameter is cut over which axis, outermost first."""
    if record.expert_dim is None:
        return () if record.dim is None else ((record.dim, mesh.tp),)
    inner = () if record.dim is None else ((record.dim, mesh.etp),)
    return ((record.expert_dim, mesh.ep), *inner)


def replicated_axes(record: ParameterRecord, mesh: Mesh) -> tuple[Axis, ...]:
    """The axes over which each rank has a copy, and so a part of the gradient's sum."""
    if record.expert_dim is None:
        return (mesh.dp_cp,) if record.dim is not None else (mesh.tp, mesh.dp_cp)
    return (mesh.edp,) if record.dim is not None else (mesh.etp, mesh.edp)


def declare(module: nn.Module, name: str, record: ParameterRecord) -> None:
    """Records, on the module that made it, what its parameter ``name`` is."""
    if STANDALONE:
        _start(getattr(module, name), record.law)
        return
    records = module.__dict__.setdefault("_parameter_records", {})
    records[name] = record


def _start(parameter: nn.Parameter, law: Law | None) -> None:
    """Gives a parameter its initial value as torch draws it, where no ``materialize`` will."""
    if isinstance(law, Normal):
        nn.init.normal_(parameter, mean=law.mean, std=law.std)
    if isinstance(law, Constant):
        nn.init.constant_(parameter, law.value)
    if isinstance(law, Uniform):
        nn.init.uniform_(parameter, law.low, law.high)
        if law.then == "log":
            parameter.data.log_()
        if law.then == "step_size":
            parameter.data.exp_().expm1_().log_()


def parameter_table(root: nn.Module) -> Table:
    """Every parameter of ``root`` by qualified name, ties included.

    A parameter without a record is held whole by every rank. Of a tied parameter the first name is
    canonical, and the first record that any of its names has is taken. Raises ValueError where two
    records of a tied parameter contradict each other.
    """
    stored = root.__dict__.get("_parameter_table")
    if stored is not None:
        return cast(Table, stored)
    names: dict[int, list[str]] = {}
    records: dict[str, ParameterRecord] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for prefix, module in root.named_modules(remove_duplicate=False):
        declared = module.__dict__.get("_parameter_records", {})
        for local_name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{prefix}.{local_name}" if prefix else local_name
            names.setdefault(id(parameter), []).append(name)
            shapes[name] = tuple(parameter.shape)
            if local_name in declared:
                records[name] = declared[local_name]
    table: Table = {}
    for aliases in names.values():
        canonical = aliases[0]
        known = [name for name in aliases if name in records]
        record = records[known[0]] if known else ParameterRecord(shapes[canonical])
        for name in known[1:]:
            other = records[name]
            if (other.shape, other.dim) != (record.shape, record.dim):
                raise ValueError(
                    f"{known[0]} and {name} are one parameter, but the first is {record.shape} cut "
                    f"on {record.dim} and the second {other.shape} cut on {other.dim}"
                )
        table[canonical] = record
        for name in aliases[1:]:
            table[name] = replace(record, tied_to=canonical)
    return table


def canonical_parameters(root: nn.Module) -> Iterator[tuple[str, ParameterRecord, nn.Parameter]]:
    """Each parameter once: its canonical name, its record, itself."""
    for name, record in parameter_table(root).items():
        if record.tied_to is None:
            yield name, record, held_parameter(root, name)


def local_tensor(tensor: Tensor) -> Tensor:
    """What this rank holds in memory, detached: FSDP's shard, else the tensor."""
    sharded = as_sharded(tensor)
    return tensor.detach() if sharded is None else sharded.to_local().detach()


@dataclass(frozen=True)
class Division:
    """``parts`` equal, rounded up parts along ``dim``, one for each rank of a mesh axis."""

    dim: int
    parts: int
    axis: str


def divisions(record: ParameterRecord, parameter: Tensor, mesh: Mesh) -> tuple[Division, ...]:
    """How the global tensor is cut, outermost first: over tp, or over ep and etp, then by FSDP what
    those have left.
    """
    found = [Division(dim, axis.size, axis.name) for dim, axis in cut_axes(record, mesh)]
    sharded = as_sharded(parameter)
    if sharded is not None:
        from torch.distributed.tensor.placement_types import Shard

        names = sharded.device_mesh.mesh_dim_names or ()
        for mesh_dim, placement in enumerate(sharded.placements):
            if isinstance(placement, Shard):
                size = sharded.device_mesh.size(mesh_dim)
                found.append(Division(placement.dim, size, names[mesh_dim]))
    return tuple(found)


def part_of(shape: tuple[int, ...], cuts: Iterable[tuple[Division, int]]) -> LocalPart:
    """The part of a global ``shape`` that is left after each division's part of this number.

    The one place where offsets are worked out: initial values, loading and checkpoints use it.
    Padding rows belong to no part, so they reach neither a table nor a checkpoint.
    """
    offset = [0] * len(shape)
    extent, size = list(shape), list(shape)
    for division, index in cuts:
        dim = division.dim
        own = cut(size[dim], division.parts, index)
        offset[dim] += own.offset
        extent[dim] = max(0, min(own.size, extent[dim] - own.offset))
        # What a later division cuts: a layer's part with its padding, as it lies in memory; FSDP
        # keeps none on the ranks that it leaves short.
        size[dim] = own.size if division.axis in LAYERS_AXES else own.valid
    return LocalPart(tuple(offset), tuple(extent))


def local_part(record: ParameterRecord, parameter: Tensor, mesh: Mesh) -> LocalPart:
    """Where this rank's ``parameter`` lies in the global tensor: explicit offsets."""
    sharded = as_sharded(parameter)
    cuts = []
    for division in divisions(record, parameter, mesh):
        if division.axis in LAYERS_AXES:
            index = getattr(mesh, division.axis).rank
        else:
            assert sharded is not None
            names = sharded.device_mesh.mesh_dim_names or ()
            index = sharded.device_mesh.get_local_rank(names.index(division.axis))
        cuts.append((division, index))
    return part_of(record.shape, cuts)


@torch.no_grad()
def full_tensors(model: nn.Module, mesh: Mesh, grads: bool = False) -> dict[str, Tensor]:
    """Every parameter (or gradient) as its whole, unpadded global tensor, on every rank.

    Canonical names; those of all stages of a pipeline. Gradients must be summed already
    (``sum_replicated_gradients``); a parameter without a gradient is left out. All ranks must call
    it together.
    """
    full: dict[str, Tensor] = {}
    for name, record, parameter in canonical_parameters(model):
        tensor = parameter.grad if grads else parameter
        if tensor is None:
            continue
        # A copy: on one rank it may be the parameter's own memory.
        whole = whole_tensor(tensor, record, mesh)
        full[name] = whole.clone(memory_format=torch.contiguous_format)
    parts = stage_parts(model)
    return full if parts is None else _of_all_stages(full, parts, mesh)


def _of_all_stages(own: Mapping[str, Tensor], parts: StageParts, mesh: Mesh) -> dict[str, Tensor]:
    """In the order of the whole table; each comes from the first stage that holds it."""
    names = list(parts.holders)
    device = "cpu" if mesh.device_mesh is None else mesh.device_mesh.device_type
    there = torch.tensor([name in own for name in names], dtype=torch.int32, device=device)
    dist.all_reduce(there, op=dist.ReduceOp.MAX, group=mesh.pp.group)
    found: dict[str, Tensor] = {}
    for name, held in zip(names, there.tolist(), strict=True):
        if held:
            tensor = own.get(name)
            if tensor is None:  # masters and their gradients are float32
                tensor = torch.empty(parts.table[name].shape, device=device)
            dist.broadcast(tensor, group=mesh.pp.group, group_src=parts.holders[name][0])
            found[name] = tensor
    return found


@torch.no_grad()
def whole_tensor(tensor: Tensor, record: ParameterRecord, mesh: Mesh) -> Tensor:
    """The global tensor, unpadded, from each rank's part. All ranks must call it together."""
    sharded = as_sharded(tensor)
    local = tensor.detach() if sharded is None else sharded.full_tensor()
    for dim, axis in reversed(cut_axes(record, mesh)):
        local = all_gather(local, dim, axis).narrow(dim, 0, record.shape[dim])
    return local


@torch.no_grad()
def load_full_tensors(model: nn.Module, mesh: Mesh, tensors: Mapping[str, Tensor]) -> None:
    """Copies whole global tensors into this rank's parts; the inverse of ``full_tensors``.

    Raises KeyError where a parameter has no tensor or a tensor no parameter, ValueError where a
    shape differs; in both cases nothing was copied.
    """
    targets = list(canonical_parameters(model))
    parts = stage_parts(model)
    known = {name for name, _, _ in targets} if parts is None else set(parts.holders)
    missing = sorted(known - set(tensors))
    unknown = sorted(set(tensors) - known)
    if missing or unknown:
        raise KeyError(f"tensors do not match the model: missing {missing}, unknown {unknown}")
    for name, record, _ in targets:
        if tuple(tensors[name].shape) != record.shape:
            raise ValueError(
                f"{name} has shape {record.shape}, but a tensor of {tuple(tensors[name].shape)} "
                "was given"
            )
    for name, record, parameter in targets:
        part, local = local_part(record, parameter, mesh), local_tensor(parameter)
        local.zero_()
        part.valid(local).copy_(part.of(tensors[name]))
