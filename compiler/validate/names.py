"""Names, shapes, records and constructors: what two models are, before they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..stage_guards import HIDDEN
from .build import Built
from .failure import differ
from .inputs import signature
from .op_log import shown


def compare_names(ours: Built, theirs: Built, page_name: str) -> None:
    """Raises ValidationError for the first thing in which the models are not built alike.

    Compared: the state dict's names in order; type, shape and trainability of parameters and
    buffers; ties; each parameter's record (global shape, how tp cuts it, its initial law); the
    operations that make the values of the others; the forward's parameters; and, of the modules
    whose class the page imports, the class and the constructor's arguments.
    """
    _compare_order(
        "names of the state dict", list(ours.root.state_dict()), list(theirs.root.state_dict())
    )
    _compare_order("buffers", _buffers(ours.root), _buffers(theirs.root))
    _compare_tensors(ours, theirs)
    _compare_records(ours, theirs)
    _compare_making(ours, theirs)
    _compare_forward(ours.root, theirs.root)
    _compare_imported(ours, theirs, page_name)


def _buffers(root: nn.Module) -> list[str]:
    return [name for name, _ in root.named_buffers(remove_duplicate=False)]


def _compare_order(what: str, ours: Sequence[str], theirs: Sequence[str]) -> None:
    for name in theirs:
        if name not in ours:
            differ("SP501", f"the page's model has no `{name}`, and the spec's model has")
    for name in ours:
        if name not in theirs:
            differ("SP501", f"the page's model has `{name}`, and the spec's model has not")
    for position, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their:
            differ(
                "SP501",
                f"the {what} have another order: number {position} is `{our}` on the page and "
                f"`{their}` in the spec's model",
            )


def _compare_tensors(ours: Built, theirs: Built) -> None:
    others = theirs.tensors()
    for name, tensor in ours.tensors().items():
        other = others.get(name)
        if other is None:
            differ("SP501", f"`{name}` is no tensor of the spec's model")
        for what, our, their in (
            ("shape", list(tensor.shape), list(other.shape)),
            ("type", tensor.dtype, other.dtype),
            ("requires_grad", tensor.requires_grad, other.requires_grad),
            ("class", type(tensor).__name__, type(other).__name__),
        ):
            if our != their:
                _differ_in(f"{what} of `{name}`", our, their)


def _compare_records(ours: Built, theirs: Built) -> None:
    for name, record in theirs.table.items():
        own = ours.table.get(name)
        if own is None:
            differ("SP501", f"`{name}` is no parameter of the page's model")
        if own.tied_to != record.tied_to:
            _differ_in(f"parameter that `{name}` is tied to", own.tied_to, record.tied_to)
        if own.law != record.law:
            _differ_in(f"law of the initial values of `{name}`", own.law, record.law, "SP502")
        if own.shape != record.shape or own.dim != record.dim:
            mine, other = (f"{list(r.shape)} cut on {r.dim}" for r in (own, record))
            _differ_in(f"global shape of `{name}`", mine, other)


def _compare_making(ours: Built, theirs: Built) -> None:
    others = theirs.tensors()
    for name, tensor in ours.tensors().items():
        our, their = ours.made_by(tensor), theirs.made_by(others[name])
        if our == their:
            continue
        for one, other in zip(our, their, strict=False):
            if one != other:
                _differ_in(f"first value of `{name}`", shown(one), shown(other), "SP502")
        both = (f"{len(our)} operations", f"{len(their)} operations")
        _differ_in(f"first value of `{name}`", *both, "SP502")


def _compare_forward(ours: nn.Module, theirs: nn.Module) -> None:
    our, their = signature(ours), signature(theirs)
    if HIDDEN not in their and our.get(HIDDEN) is False:
        del our[HIDDEN]  # the page's alone: what a pipeline's later stages are given
    if our != their:
        mine, other = (
            ", ".join(n if needed else f"{n}=" for n, needed in s.items()) for s in (our, their)
        )
        _differ_in(f"signature of `{type(theirs).__name__}.forward`", f"({mine})", f"({other})")


def _compare_imported(ours: Built, theirs: Built, page_name: str) -> None:
    """What no operation shows in one process: how a runtime layer is cut, gathered and padded."""
    others = dict(theirs.root.named_modules())
    for path, module in ours.root.named_modules():
        other = others.get(path)
        if other is None:
            differ("SP501", f"the spec's model has no module `{path}`", path=path)
        if module.training != other.training:
            _differ_in(f"training mode of `{path}`", module.training, other.training)
        if type(module).__module__ == page_name:
            continue
        if not isinstance(other, type(module)):
            _differ_in(f"class of `{path}`", type(module).__name__, type(other).__name__)
        for name, value in vars(module).items():
            if _is_plain(value) and not _same(value, vars(other).get(name, value)):
                _differ_in(f"`{name}` of `{path}`", value, vars(other)[name])
        own, their = ours.recording.of(module), theirs.recording.of(other)
        if own is None or their is None or type(module) is not type(other):
            continue
        for name, value in own.arguments.items():
            if _is_plain(value) and not _same(value, their.arguments.get(name)):
                what = f"`{name}` that `{type(module).__name__}` is given at `{path}`"
                _differ_in(what, value, their.arguments.get(name))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _same(one: Any, other: Any) -> bool:
    equal = type(one) is type(other) and one == other
    return bool(equal or (one != one and other != other))


def _differ_in(what: str, our: Any, their: Any, code: str = "SP501") -> None:
    differ(code, f"the {what} is {our} on the page and {their} in the spec's model")
