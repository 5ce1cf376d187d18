"""Layers of one kind run once: the others are logged as one call each, so that depth costs little.

The loop over the layers runs whole, with every layer's inputs and outputs in the log. Only the
inside of a layer is left out, where a layer of the same kind, in both models, has run with inputs
of the same types and shapes. It stands in the log as "layer", with its kind and those inputs that
the first one read (a page passes no others on); its outputs, and its inputs' gradients, are fresh
tensors of the form that the first layer's had.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .op_log import Call, OpLog, Ref, Source


class Unseen(Exception):
    """A value whose content can't be compared."""


def kinds(ours: nn.Module, theirs: nn.Module) -> dict[str, int]:
    """The layers that stand in lists, by path, numbered by kind: equal in class and in all that
    they hold, in both models. A layer that is the only one of its kind is left out.

    Where a page keeps less than the spec's model (a layer's number that nothing reads), layers
    that only differ in that are two kinds: they all run.
    """
    others = dict(theirs.named_modules())
    known: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for path, parent in ours.named_modules():
        if isinstance(parent, (nn.ModuleList, nn.Sequential)):
            for name, layer in parent.named_children():
                inner = f"{path}.{name}" if path else name
                if inner in others:
                    both = (_signature(layer), _signature(others[inner]))
                    found[inner] = known.setdefault(both, len(known))
    counts = Counter(found.values())
    return {path: kind for path, kind in found.items() if counts[kind] > 1}


_STORES = frozenset({"_parameters", "_buffers", "_modules"})


def _signature(module: nn.Module) -> Hashable:
    own = tuple((n, _content(v)) for n, v in vars(module).items() if n not in _STORES)
    tensors = tuple(
        (n, None if t is None else (t.dtype, t.shape, t.requires_grad, t.is_meta))
        for store in (module._parameters, module._buffers)
        for n, t in store.items()
    )
    children = tuple((n, None if m is None else _signature(m)) for n, m in module._modules.items())
    return (type(module), own, tensors, children)


def _content(value: Any) -> Hashable:
    """A value for comparison; of what may change or is not known, which object it is."""
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.Size)):
        return (type(value), value)
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_content(v) for v in value))
    if isinstance(value, dict):
        return (type(value), tuple((_content(k), _content(v)) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return (type(value), frozenset(_content(v) for v in value))
    parameters = getattr(value, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen and parameters.eq:
        names = [f.name for f in dataclasses.fields(value)]
        return (type(value), tuple(_content(getattr(value, n)) for n in names))
    return id(value)


def run_once(root: nn.Module, kinds: Mapping[str, int], log: OpLog) -> None:
    """From now on, each layer of these runs itself only where none of its kind has."""
    memory: dict[Hashable, _Outcome | None] = {}
    modules = dict(root.named_modules())
    for path, kind in kinds.items():
        layer = modules[path]
        layer.forward = _Once(layer, kind, log, memory)


@dataclasses.dataclass
class _Outcome:
    """The form of what a layer returned: a structure with a form in each tensor's place.

    `read` says of each input whether any operation of the layer took it.
    """

    structure: Any
    forms: list[_Form]
    read: list[bool]


@dataclasses.dataclass(frozen=True)
class _Form:
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool

    def fresh(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


def _form(tensor: Tensor) -> _Form:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return _Form(tensor.dtype, shape, stride, tensor.requires_grad)


class _Once:
    """Stands for the forward of one layer."""

    def __init__(
        self, layer: nn.Module, kind: int, log: OpLog, memory: dict[Hashable, _Outcome | None]
    ) -> None:
        self.forward: Callable[..., Any] = layer.forward
        self.layer, self.kind, self.log, self.memory = layer, kind, log, memory
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        inputs: list[Tensor] = []
        try:
            structure = _structure((args, kwargs), inputs)
        except Unseen:
            return self.forward(*args, **kwargs)
        # How often it was called is part of the question: a layer may do otherwise later.
        state = (self.layer.training, torch.is_grad_enabled())
        key = (self.kind, self.calls, state, structure, tuple(_form(t) for t in inputs))
        outcome = self.memory.get(key)
        if outcome is not None:
            return self._without_running(outcome, inputs)
        before, start = [self.log.source(t) for t in inputs], len(self.log.calls)
        output = self.forward(*args, **kwargs)
        if key not in self.memory:
            changed = before != [self.log.source(t) for t in inputs]
            taken = set(_sources(self.log.calls[start:]))
            read = [source is None or source in taken for source in before]
            self.memory[key] = None if changed else _outcome(output, inputs, read)
        return output

    def _without_running(self, outcome: _Outcome, inputs: list[Tensor]) -> Any:
        given = [*inputs, *self.layer.parameters()]
        outputs = _Layer.apply(self, outcome, len(inputs), *given)  # type: ignore[no-untyped-call]
        return _rebuilt(outcome.structure, list(outputs))


class _Layer(torch.autograd.Function):
    """A layer that does not run, and its backward."""

    @staticmethod
    def forward(
        ctx: Any, once: _Once, outcome: _Outcome, count: int, *given: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.once, ctx.inputs = once, [_form(t) for t in given[:count]]
        ctx.set_materialize_grads(False)
        with once.log.silenced():
            outputs = tuple(form.fresh() for form in outcome.forms)
        read = [t for t, taken in zip(given[:count], outcome.read, strict=True) if taken]
        once.log.note("layer", (once.kind, once.calls, once.log.distinct(read)), outputs)
        pairs = zip(outputs, outcome.forms, strict=True)
        ctx.mark_non_differentiable(*[t for t, form in pairs if not form.requires_grad])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[3:]
        with ctx.once.log.silenced():
            found = [
                form.fresh() if need else None
                for form, need in zip(ctx.inputs, needed, strict=False)
            ]
        results = [t for t in found if t is not None]
        ctx.once.log.note("layer's backward", (ctx.once.kind, grads), results)
        return (None, None, None, *found, *[None] * (len(needed) - len(found)))


def _sources(value: Any) -> Iterator[Source]:
    """Where the tensors in these calls' arguments come from."""
    if isinstance(value, Ref):
        yield value.source
    elif isinstance(value, Call):
        yield from _sources(value.args)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _sources(part)


def _outcome(output: Any, inputs: list[Tensor], read: list[bool]) -> _Outcome | None:
    """What can stand for the output; None where it shares memory with an input, or is unknown."""
    tensors: list[Tensor] = []
    try:
        structure = _structure(output, tensors)
    except Unseen:
        return None
    taken = {t.untyped_storage()._cdata for t in inputs}
    keys = [t.untyped_storage()._cdata for t in tensors]
    if not tensors or len(set(keys)) < len(keys) or taken & set(keys):
        return None
    return _Outcome(structure, [_form(t) for t in tensors], read)


_TENSOR = "a tensor"
_PLAIN = (type(None), bool, int, float, str, torch.dtype)


def _structure(value: Any, tensors: list[Tensor]) -> Hashable:
    """A value with its tensors taken out. Raises Unseen for an object that is not understood."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return (_TENSOR,)
    if type(value) in _PLAIN:
        return (type(value), value)
    if type(value) in (list, tuple):
        return (type(value), tuple(_structure(v, tensors) for v in value))
    if type(value) is dict:
        items = tuple((_structure(k, tensors), _structure(v, tensors)) for k, v in value.items())
        return (dict, items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return (type(value), tuple(_structure(getattr(value, n), tensors) for n in names))
    raise Unseen


def _rebuilt(structure: Any, tensors: list[Tensor]) -> Any:
    """The value of a structure: the opposite of `_structure`."""
    if structure == (_TENSOR,):
        return tensors.pop(0)
    kind: Any
    kind, content = structure
    if kind in (list, tuple):
        return kind([_rebuilt(part, tensors) for part in content])
    if kind is dict:
        return {_rebuilt(k, tensors): _rebuilt(v, tensors) for k, v in content}
    if kind not in _PLAIN:  # a dataclass
        return kind(*[_rebuilt(part, tensors) for part in content])
    return content
