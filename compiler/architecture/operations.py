"""The ATen calls of a run, with the module that makes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import Form, Operation, Phase
from .recorder import Recorder


class OperationLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects `operations`, by phase; the recorder knows where the run is."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        self.operations: dict[Phase, list[Operation]] = {}
        self._silent = False
        self._held: list[torch.UntypedStorage] = []  # so that no key is used twice
        self._names: dict[int, str] = {}  # of storages

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, the default, imports the whole of torch._dynamo: seconds

    def name(self, name: str, tensor: Tensor) -> None:
        """A parameter or a buffer goes by this name, and so do its views."""
        storage = tensor.untyped_storage()
        self._held.append(storage)
        self._names[int(storage._cdata)] = name

    @contextmanager
    def silenced(self) -> Iterator[None]:
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self._silent:
            place, attention = self.recorder.path, self.recorder.inside_attention
            inputs, outputs = self._forms((*args, kwargs)), self._forms(out)
            recurrent = self.recorder.inside_recurrence
            found = Operation(place, str(func), inputs, outputs, attention, recurrent)
            self.operations.setdefault(self.recorder.phase, []).append(found)
        return out

    def _forms(self, value: Any) -> tuple[Form, ...]:
        if isinstance(value, Tensor):
            name = self._names.get(int(value.untyped_storage()._cdata))
            return (Form(tuple(value.shape), value.dtype, name),)
        if isinstance(value, (tuple, list)):
            return tuple(form for part in value for form in self._forms(part))
        if isinstance(value, dict):
            return self._forms(tuple(value.values()))
        return ()
