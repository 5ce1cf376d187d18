"""Data parallel by FSDP2: ZeRO-1, 2 and 3, and copies of each (HSDP).

Sums everywhere: each rank's loss is already its share of the global one (divided by the global
count of tokens), so a gradient is the plain sum over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial, wraps
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.utils._python_dispatch import _disable_current_modes

from .mesh import Mesh
from .parameters import parameter_table
from .sharded_groups import ShardedGroups, sharded_groups
from .stage_parts import PAGE_LAYERS

STAGES = (1, 2, 3)
_STAGE = "_zero_stage"


def shard(model: nn.Module, mesh: Mesh, *, dtype: torch.dtype, zero: int = 3) -> None:
    """Shards ``model`` in place: each element of the outermost ``nn.ModuleList``s, then the rest.

    Over ``mesh.fsdp_mesh``: dp_shard x cp, and dp_replicate copies of the result where that is
    above 1 (HSDP), with any stage. ``zero`` says what is cut: the optimizer's state (1), also the
    gradients (2), also the parameters (3). With U such elements and M micro-batches a step
    communicates

    ====  ===========  ===============  ======================  ===================================
    zero  all-gathers  reduce-scatters  all-reduces (copies)    held whole until the step ends
    ====  ===========  ===============  ======================  ===================================
    3     2 U M + 1    (U + 1) M        U + 1                   the rest's parameters
    2     U + 1        (U + 1) M        U + 1                   all parameters, in ``dtype``
    1     U + 1        U + 1            U + 1                   and gradients, in float32
    ====  ===========  ===============  ======================  ===================================

    Meant as ``materialize(..., wrap=...)``: it works on a model without memory. Weights are
    gathered in ``dtype``; masters, reductions and optimizer state are float32; inputs are not cast,
    since the layers state the precision. The rest (embedding, final norm, output layer) stays
    gathered for the whole step, so that the output layer's weight may be used beside its forward.
    A parameter that is one number (no dimension) has nothing to cut: every rank keeps it in
    float32, and ``sum_replicated_gradients`` sums its gradient. So it does a vector that is not
    trained (a router's ``expert_bias``), whose value must not be rounded. The gradients that one
    backward brings to a tied weight add up in float32, as they would without FSDP.

    Experts are groups of their own, over the ranks that have the same ones
    (``mesh.expert_fsdp_mesh``): U counts each of them too. They are cut between experts, or inside
    each where a rank has too few to give every rank of that mesh as many.

    Every rank has to run every element; a parameter inside it may be without a gradient on some.
    Raises ValueError where the mesh was not launched over a process group, and for another stage.
    """
    if mesh.fsdp_mesh is None:
        raise ValueError(
            "shard needs a mesh over a process group: Mesh.launch(), not Mesh.single()"
        )
    if zero not in STAGES:
        raise ValueError(f"zero={zero} is not a stage of ZeRO; there are 1, 2 and 3")
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    whole = {p for p in model.parameters() if p.dim() == 0 or _is_state(p)}
    experts = expert_groups(model)
    modules = [*experts, *units(model), model]
    parts = mesh.edp.size // mesh.dp_replicate.size
    groups = ShardedGroups(model, modules, whole, alone=mesh.dp_cp_tp.size == 1)
    for module in modules:
        fully_shard(
            module,
            mesh=mesh.expert_fsdp_mesh if module in experts else mesh.fsdp_mesh,
            mp_policy=policy,
            reshard_after_forward=zero == 3 and module is not model,
            ignored_params=whole,
            shard_placement_fn=partial(_placement, parts) if module in experts else None,
        )
    for module in experts:
        _unseen(module)
    groups.watch()
    for sharded in _sharded(model):
        # Both are needed: a factor other than 1 has no sum on gloo, and none is an average.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
    model.__dict__[_STAGE] = zero


def _unseen(module: nn.Module) -> None:
    """Hides what FSDP does around a call inside of a layer from a recompute that keeps results by
    their operation: what it gathers in a backward is not what it gathered in the forward."""

    def unseen(hook: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(hook)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return hook(*args, **kwargs)

        return run

    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in hooks.items():
            hooks[key] = unseen(hook)


def accumulate(model: nn.Module, *, last: bool) -> None:
    """Call before each micro-batch; ``last`` is the one whose backward ends the step.

    Gradients add up in float32 from one micro-batch to the next. Under ZeRO-1 they do so whole on
    each rank and are communicated once, in the ``last``; under ZeRO-2 and 3, which keep them cut,
    each micro-batch's are reduce-scattered. Copies (HSDP) are summed once, in the ``last``. What
    stays gathered from forward to backward stays so until the ``last`` is done. Does nothing to an
    unsharded model.
    """
    groups = sharded_groups(model)
    if groups is None:
        return
    zero = model.__dict__[_STAGE]
    groups.reduces = last or zero != 1
    for module in _sharded(model):
        module.set_requires_gradient_sync(groups.reduces, recurse=False)
        module.set_requires_all_reduce(last, recurse=False)
        if zero == 1:
            module.set_is_last_backward(last)  # before it there is no reduction to wait for
        if zero != 3 or cast(nn.Module, module) is model:
            module.set_reshard_after_backward(last, recurse=False)


def _is_state(parameter: nn.Parameter) -> bool:
    return not parameter.requires_grad and parameter.dim() == 1


def _placement(parts: int, parameter: nn.Parameter) -> Shard | None:
    """Experts [E, n, ...] in ``parts``: whole ones, or of each as many of the n (None: whole ones).

    FSDP cuts dimensions other than the first only where ``parts`` divides them.
    """
    experts, *inner = parameter.shape
    return Shard(1) if experts % parts and inner and inner[0] % parts == 0 else None


def expert_groups(model: nn.Module) -> list[nn.Module]:
    """The outermost modules that hold parameters of experts and no others: ``shard`` makes each a
    group of its own."""
    names = {n for n, r in parameter_table(model).items() if r.expert_dim is not None}
    if not names:
        return []

    def of(module: nn.Module, prefix: str) -> list[nn.Module]:
        held = [f"{prefix}{n}" for n, _ in module.named_parameters(remove_duplicate=False)]
        if held and names.issuperset(held):
            return [module]
        found: list[nn.Module] = []
        for name, child in module.named_children():
            found += of(child, f"{prefix}{name}.")
        return found

    return of(model, "")


def parts_around(layer: nn.Module, apart: Collection[nn.Module]) -> Iterator[nn.Module]:
    """The largest modules of a layer that hold none of ``apart``, and those of ``apart``: the layer
    itself where it has none of them."""
    if layer in apart or not any(module in apart for module in layer.modules()):
        yield layer
    else:
        for child in layer.children():
            yield from parts_around(child, apart)


def _sharded(model: nn.Module) -> list[FSDPModule]:
    return [cast(FSDPModule, m) for m in model.modules() if isinstance(m, FSDPModule)]


def layers(model: nn.Module) -> list[nn.Module]:
    """The elements of the lists that the page names (LAYERS), else of the outermost module lists:
    those that have parameters, each once."""
    named: tuple[str, ...] | None = model.__dict__.get(PAGE_LAYERS)
    found = _elements(model) if named is None else _elements_of(model, named)
    return [e for e in dict.fromkeys(found) if any(True for _ in e.parameters())]


def units(model: nn.Module) -> list[nn.Module]:
    """The ``layers`` that have a group of their own.

    One that shares a parameter with anything outside it is left to the root: two groups cannot hold
    one parameter.
    """
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    return [layer for layer in layers(model) if not _shares(layer, users)]


def _elements_of(model: nn.Module, lists: tuple[str, ...]) -> list[nn.Module]:
    """Of a list that another stage of the pipeline has there are none."""
    there = dict(model.named_modules())
    return [element for path in lists if path in there for element in there[path].children()]


def _elements(module: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        inside = isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList)
        found += [child] if inside else _elements(child)
    return found


def _shares(unit: nn.Module, users: dict[int, int]) -> bool:
    inside: dict[int, int] = {}
    for module in unit.modules():
        for parameter in module.parameters(recurse=False):
            inside[id(parameter)] = inside.get(id(parameter), 0) + 1
    return any(count != users[key] for key, count in inside.items())
