"""A log of ATen calls: operation, numbers, types, shapes, and where each input comes from.

A tensor is known by its storage, so that views, in-place operations and what autograd saves need
no care: an input is named by the call that last wrote its storage, or by its parameter's name, with
its type, shape and strides.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Source = int | str
_META = torch.device("meta")


class Ref(NamedTuple):
    """A tensor as a window on what a call wrote (its number), or on something that has a name."""

    source: Source
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Call(NamedTuple):
    """One call. `kept`: it has an effect beyond its results (it draws, or writes an input)."""

    op: str
    args: tuple[Any, ...]
    results: tuple[Any, ...]
    kept: bool


Forms = dict[Any, tuple[Any, list[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]]] | None]


class OpLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects `calls`; beside each, `places` has what `place` was.

    With `forms`, everything runs on the meta device: what a model makes anew is made there, and a
    real tensor goes by its content. An operation there gives a form, and takes long for it; `forms`
    keeps them, by the operation and the forms of its arguments. Logs may share it.
    """

    def __init__(self, forms: Forms | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.places: list[tuple[str, str]] = []
        self.place = ("", "")  # the module and the phase
        self._forms = forms
        self._met_real = False  # whether the arguments at hand hold a real tensor
        self._sources: dict[int, Source] = {}
        self._storages: list[torch.UntypedStorage] = []  # held, so that no key is used twice
        self._silent = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, the default, imports the whole of torch._dynamo: seconds

    def name(self, name: str, tensor: Tensor) -> None:
        """From now on the tensor's storage goes by this name."""
        storage = tensor.untyped_storage()
        self._storages.append(storage)
        self._sources[storage._cdata] = name

    def source(self, tensor: Tensor) -> Source | None:
        """Where the tensor's content comes from; None where that was never seen."""
        return self._sources.get(tensor.untyped_storage()._cdata)

    def distinct(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """These tensors, without those that are the same window on the same content again."""
        found = {self._ref(t): t for t in reversed(list(tensors))}
        return list(reversed(found.values()))

    def note(
        self, op: str, args: Any, results: Iterable[Tensor] = (), written: Iterable[Tensor] = ()
    ) -> None:
        """Adds an entry that is no ATen call; it counts as the source of its results, and of those
        of its arguments that it has written.
        """
        given = self._written(args)
        self._add(op, given, list(results), list(written), kept=True)

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Nothing is logged inside."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            if self._silent:
                return func(*args, **kwargs)
            # A creation's device is where the log runs, not what the model does.
            named = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
            written = self._written((*args, named)) if named else self._written(args)
            operation, writes, draws, aliases, creates = _facts(func)
            if self._forms is None:
                out = func(*args, **kwargs)
            else:
                if creates or "device" in kwargs:
                    kwargs = kwargs | {"device": _META}
                if self._met_real:
                    args, kwargs = self._meta(tuple(args)), self._meta(kwargs)
                    self._met_real = False
                out = func(*args, **kwargs) if aliases else self._made(func, args, kwargs, written)
            mutated = [kwargs.get(w) if isinstance(w, str) else _at(args, w) for w in writes]
            self._add(operation, written, out, mutated, kept=draws or bool(writes))
            return out

    def _made(self, func: Any, args: Any, kwargs: Any, written: Any) -> Any:
        """The results of an operation that neither writes its arguments nor returns their views."""
        assert self._forms is not None
        key = (func, _sourceless(written))
        known = self._forms.get(key)
        if known is not None:
            kind, forms = known
            fresh = [
                torch.empty_strided(shape, stride, dtype=dtype, device=_META)
                for dtype, shape, stride in forms
            ]
            return fresh[0] if kind is Tensor else kind(fresh)
        out = func(*args, **kwargs)
        if key not in self._forms:
            self._forms[key] = _forms(out, args)
        return out

    def _meta(self, value: Any) -> Any:
        """Arguments with a twin on the meta device for each real tensor in them."""
        if isinstance(value, Tensor):
            if value.is_meta:
                return value
            twin = torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device=_META
            )
            self.name(_constant(value), twin)
            return twin
        if isinstance(value, (tuple, list)):
            return type(value)([self._meta(v) for v in value])
        if isinstance(value, dict):
            return {k: self._meta(v) for k, v in value.items()}
        return value

    def _add(self, op: str, args: tuple[Any, ...], out: Any, mutated: Any, *, kept: bool) -> None:
        number = len(self.calls)
        for tensor in _flat(mutated):
            self._write(tensor, number)
        results = []
        for tensor in _flat(out):
            if self.source(tensor) is None:
                self._write(tensor, number)
            results.append(self._ref(tensor))
        self.calls.append(Call(op, args, tuple(results), kept))
        self.places.append(self.place)

    def _write(self, tensor: Tensor, number: int) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sources:
            self._storages.append(storage)
        self._sources[key] = number

    def _written(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._ref(value)
        if isinstance(value, (tuple, list)):
            return tuple([self._written(v) for v in value])
        if isinstance(value, dict):
            return tuple([(k, self._written(v)) for k, v in value.items()])
        if value is None or type(value) in (int, str):
            return value
        return repr(value)  # 1.0 is not 1, nor is True; NaN is NaN

    def _ref(self, tensor: Tensor) -> Ref:
        source = self._sources.get(tensor.untyped_storage()._cdata)
        if source is None:
            source = _constant(tensor)
            self._met_real = self._met_real or not tensor.is_meta
        return Ref(
            source,
            tensor.dtype,
            tuple(tensor.size()),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
        )


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _flat(v)]
    return []


def _at(args: Sequence[Any], position: int) -> Any:
    return args[position] if position < len(args) else None


def _sourceless(value: Any) -> Any:
    """Written arguments without where they come from."""
    if isinstance(value, Ref):
        return value[1:]
    if isinstance(value, tuple):
        return tuple([_sourceless(v) for v in value])
    return value


def _forms(out: Any, args: Any) -> Any:
    """What `OpLog._made` keeps of results; None where they can't be made anew."""
    tensors = _flat(out)
    kind = type(out)
    if kind not in (Tensor, tuple, list) or (kind is not Tensor and len(tensors) < len(out)):
        return None
    if any(type(t) is not Tensor or not t.is_meta or t.storage_offset() for t in tensors):
        return None
    keys = [t.untyped_storage()._cdata for t in (*tensors, *_flat(args))]
    if len(set(keys[: len(tensors)])) < len(tensors) or set(keys[: len(tensors)]) & set(
        keys[len(tensors) :]
    ):
        return None
    return kind, [(t.dtype, tuple(t.shape), tuple(t.stride())) for t in tensors]


@functools.cache
def _facts(func: Any) -> tuple[str, tuple[int | str, ...], bool, bool, bool]:
    """An operation's name, the arguments that it writes, whether it draws at random, whether its
    results may share memory with its arguments, and whether it makes a tensor from none."""
    arguments = func._schema.arguments
    creates = any(a.name == "device" for a in arguments) and not any(
        "Tensor" in str(a.type) for a in arguments
    )
    draws = torch.Tag.nondeterministic_seeded in func.tags
    writes: list[int | str] = []
    aliases = False
    for position, argument in enumerate(arguments):
        if argument.alias_info is not None:
            aliases = True
            if argument.alias_info.is_write:
                writes.append(argument.name if argument.kwarg_only else position)
    return str(func), tuple(writes), draws, aliases, creates


def _constant(tensor: Tensor) -> str:
    """A tensor that no logged call made goes by its content, where it has one."""
    if tensor.is_meta:
        return "an unknown tensor"
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"a constant {hashlib.blake2b(raw, digest_size=8).hexdigest()}"


def history(log: OpLog, tensor: Tensor) -> list[Call]:
    """The calls that the tensor's content follows from, numbered from 0."""
    source = log.source(tensor)
    return [] if not isinstance(source, int) else _closure(log.calls, {source})


def live(log: OpLog) -> tuple[list[Call], list[tuple[str, str]]]:
    """The calls without those whose results nothing uses, and their places."""
    kept = [i for i, call in enumerate(log.calls) if call.kept]
    numbers = _needed(log.calls, kept)
    return _renumbered(log.calls, numbers), [log.places[i] for i in numbers]


def _closure(calls: Sequence[Call], last: Iterable[int]) -> list[Call]:
    return _renumbered(calls, _needed(calls, last))


def _needed(calls: Sequence[Call], last: Iterable[int]) -> list[int]:
    found: set[int] = set()
    pending = list(last)
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending += [r.source for r in _refs(calls[number].args) if isinstance(r.source, int)]
    return sorted(found)


def _refs(value: Any) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, tuple):
        return [r for v in value for r in _refs(v)]
    return []


def _renumbered(calls: Sequence[Call], numbers: Sequence[int]) -> list[Call]:
    new = {old: position for position, old in enumerate(numbers)}

    def moved(value: Any) -> Any:
        if isinstance(value, Ref):
            return value._replace(source=new.get(value.source, value.source))  # type: ignore[arg-type]
        if isinstance(value, tuple):
            return tuple(moved(v) for v in value)
        return value

    found = []
    for number in numbers:
        call = calls[number]
        found.append(Call(call.op, moved(call.args), moved(call.results), call.kept))
    return found


def shown(call: Call) -> str:
    """A call as a person reads it."""

    def text(value: Any) -> str:
        if isinstance(value, Ref):
            size = ", ".join(str(n) for n in value.shape)
            source = f"result {value.source}" if isinstance(value.source, int) else value.source
            return f"{source} {str(value.dtype).removeprefix('torch.')} [{size}]"
        if isinstance(value, tuple):
            return "(" + ", ".join(text(v) for v in value) + ")"
        return str(value)

    return f"{call.op}{text(call.args)}"
