"""A log of how a model's constructors make their tensors, and the replay of any part of it.

Under ``CreationLog`` no operation computes: all run on the meta device, and those that write memory
are noted. A tensor is known by its storage, so views, in-place operations, ``Parameter(x)`` and
ties need no care. ``replay`` then runs, on CPU, just the operations that some storages need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from .disguise import Disguise

_OURS = (str(Path(__file__).resolve().parent), str(Path(torch.__file__).resolve().parent))
_META, _CPU = torch.device("meta"), torch.device("cpu")


class ConstructorError(RuntimeError):
    """A constructor did something with a tensor's value that cannot be repeated; says where."""


@dataclass(frozen=True)
class Place:
    """A tensor as a window on a storage."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, eq=False)
class Entry:
    """One operation that wrote memory: which storages it read and wrote, and the user's line."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Place | None, ...]  # one for each output; None where it shares a storage
    reads: frozenset[int]
    writes: frozenset[int]
    draws: bool
    line: str


class CreationLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turns every operation into its meta twin, and notes those that write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []
        self._writers: dict[int, list[int]] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}  # held, so that no key is used twice
        self._twins: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._disguise = Disguise(self.value, self._one_draw)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, the default, imports the whole of torch._dynamo: seconds

    def __enter__(self) -> CreationLog:
        self._disguise.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._disguise.__exit__(*error)

    def _one_draw(self, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Notes a Python function that fills ``tensor`` at random as one operation."""
        _refuse_generators(args, kwargs)
        place, line = self.place(tensor), _user_line()
        touched = frozenset([place.storage])
        self._add(Entry(func, (place, *args), kwargs, (None,), touched, touched, True, line))
        return tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():  # in here, a meta tensor says so
            return self._dispatch(func, tuple(args), dict(kwargs or {}))

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = tree_map(self.meta, (args, kwargs))
        _refuse_generators(args, kwargs)
        if "device" in kwargs or _is_factory(func):
            kwargs["device"] = _META
        kwargs.pop("pin_memory", None)
        if torch.Tag.data_dependent_output in func.tags:  # .item(), torch.equal
            return self._computed(func, args, kwargs)
        try:
            out = func(*args, **kwargs)
        except NotImplementedError:  # no meta twin, as a boolean index: its shape needs the values
            mutated = _mutated(func, args, kwargs)
            if not mutated:
                return self._computed(func, args, kwargs)
            out = mutated[0]
        self._note(func, args, kwargs, out)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func.overloadpacket is torch.ops.aten.set_:
            return  # the tensor gets another storage; no storage changes
        reads = frozenset(self._key(x) for x in tree_iter((args, kwargs)) if isinstance(x, Tensor))
        outputs = tuple(
            (
                self.place(x)
                if isinstance(x, Tensor) and x.untyped_storage()._cdata not in self._storages
                else None
            )
            for x in tree_iter(out)
        )
        writes = {self._key(x) for x in _mutated(func, args, kwargs)}
        writes |= {place.storage for place in outputs if place is not None}
        if writes:
            args, kwargs = tree_map(
                lambda x: self.place(x) if isinstance(x, Tensor) else x, (args, kwargs)
            )
            draws = torch.Tag.nondeterministic_seeded in func.tags
            line = _user_line()
            self._add(Entry(func, args, kwargs, outputs, reads, frozenset(writes), draws, line))

    def _add(self, entry: Entry) -> None:
        for key in entry.writes:
            self._writers.setdefault(key, []).append(len(self.entries))
        self.entries.append(entry)

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operation on real values, none of which may be random."""
        real_args, real_kwargs = tree_map(self.value, (args, kwargs))
        with torch._C._DisableTorchDispatch():
            out = _run(func, real_args, real_kwargs)
        return tree_map(self.meta, out)

    def value(self, x: Any) -> Any:
        """The real value of a tensor now. Raises ConstructorError where it hangs on a draw."""
        if not isinstance(x, Tensor):
            return x
        place = self.place(x)
        needed = self.needed([place])
        for index in needed:
            if self.entries[index].draws:
                raise ConstructorError(
                    f"{_user_line()}: the constructor reads a value that was drawn at random (at "
                    f"{self.entries[index].line}), so what it builds cannot be repeated from the "
                    "seed and the parameters' names"
                )
        return self.replay(needed, [place])[0]

    def meta(self, x: Any) -> Any:
        """The meta twin of a real tensor, whose content becomes an entry of the log."""
        if not isinstance(x, Tensor) or x.untyped_storage().device == _META:
            return x
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            storage = x.untyped_storage()
            if storage._cdata not in self._twins:
                twin = torch.empty(storage.nbytes(), dtype=torch.uint8, device=_META)
                self._twins[storage._cdata] = (storage, twin.untyped_storage())
                place, content = self.place(twin), _Content(storage)
                nothing: frozenset[int] = frozenset()
                writes = frozenset([place.storage])
                self._add(Entry(content, (), {}, (place,), nothing, writes, False, _user_line()))
            view = torch.empty(0, dtype=x.dtype, device=_META)
            return view.set_(
                self._twins[storage._cdata][1], x.storage_offset(), x.size(), x.stride()
            )

    def _key(self, x: Tensor) -> int:
        storage = x.untyped_storage()
        self._storages.setdefault(storage._cdata, storage)
        return int(storage._cdata)

    def place(self, x: Tensor) -> Place:
        """Where a tensor lies; of a real one, where its twin does."""
        x = self.meta(x)
        return Place(self._key(x), x.dtype, tuple(x.size()), x.stride(), int(x.storage_offset()))

    def writers(self, place: Place) -> list[Entry]:
        """The operations that wrote a tensor's storage, in order."""
        return [self.entries[index] for index in self._writers.get(place.storage, [])]

    def needed(self, places: Iterable[Place]) -> list[int]:
        """The entries, in order, that the content of these tensors follows from."""
        found: set[int] = set()
        pending = [(place.storage, len(self.entries)) for place in places]
        while pending:
            key, before = pending.pop()
            for index in self._writers.get(key, []):
                if index < before and index not in found:
                    found.add(index)
                    pending.extend((read, index) for read in self.entries[index].reads)
        return sorted(found)

    def replay(self, needed: Iterable[int], places: Sequence[Place]) -> list[Tensor]:
        """Runs entries on CPU; returns the tensors at ``places``, views of one storage sharing it.

        Raises ConstructorError where a tensor's content was never seen.
        """
        memory: dict[int, torch.UntypedStorage] = {}

        def real(x: Any) -> Any:
            if not isinstance(x, Place):
                return x
            if x.storage not in memory:
                raise ConstructorError(
                    "a tensor on the meta device came from outside the build, so it has no value; "
                    "make it inside"
                )
            view = torch.empty(0, dtype=x.dtype, device=_CPU)
            return view.set_(memory[x.storage], x.offset, x.size, x.stride)

        with torch._C._DisableTorchDispatch(), torch.no_grad():
            for index in needed:
                entry = self.entries[index]
                args, kwargs = tree_map(real, (entry.args, entry.kwargs))
                out = _run(entry.func, args, kwargs)
                for place, x in zip(entry.outputs, tree_iter(out), strict=True):
                    if place is None:
                        continue
                    if x.stride() != place.stride:  # a kernel may lay out otherwise than its twin
                        laid = torch.empty_strided(place.size, place.stride, dtype=place.dtype)
                        x = laid.copy_(x)
                    memory[place.storage] = x.untyped_storage()
            return [real(place) for place in places]


class _Content:
    """Stands in the log for an operation: gives the bytes of a real tensor from outside."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage

    def __call__(self) -> Tensor:
        view = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return view.set_(self.storage).to(_CPU, copy=True)


def _run(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if "device" in kwargs:
        kwargs = {**kwargs, "device": _CPU}
    out = func(*args, **kwargs)
    if "empty" in getattr(func, "__name__", ""):
        out.zero_()  # never written: zeros, so that a replay is a function of its seed alone
    return out


def _is_factory(func: Any) -> bool:
    """Takes a device, and no tensor to take it from."""
    arguments = func._schema.arguments
    return any(a.name == "device" for a in arguments) and not any(
        "Tensor" in str(a.type) for a in arguments
    )


def _mutated(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [x for x in tree_iter(value) if isinstance(x, Tensor)]
    return found


def _refuse_generators(args: Any, kwargs: Any) -> None:
    if any(isinstance(x, torch.Generator) for x in tree_iter((args, kwargs))):
        raise ConstructorError(
            f"{_user_line()}: draws from a generator of its own, whose state depends on what else "
            "was built; leave `generator` out, and the draw follows the run's seed"
        )


def _user_line() -> str:
    """The innermost line that is neither torch's nor the runtime's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
