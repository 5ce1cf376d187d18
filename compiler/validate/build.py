"""Both models at full size on the meta device, with how each of their tensors came to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from specc.runtime import Mesh, ParameterRecord, materialize
from specc.templates.spec import PreparedSpec, construct

from ..record import Recording, record
from .failure import differ, reason
from .op_log import Call, OpLog, history


@dataclass
class Built:
    """A model, its constructors' arguments, and the log of the operations that made its tensors."""

    root: nn.Module
    recording: Recording = field(repr=False)
    log: OpLog = field(repr=False)

    @property
    def table(self) -> dict[str, ParameterRecord]:
        """The parameters' records, with the laws that constructors wrote over the layers' own."""
        table: dict[str, ParameterRecord] = self.root.__dict__["_parameter_table"]
        return table

    def tensors(self) -> dict[str, Tensor]:
        """Parameters under all their names, then buffers, kept in checkpoints or not."""
        return {
            **dict(self.root.named_parameters(remove_duplicate=False)),
            **dict(self.root.named_buffers(remove_duplicate=False)),
        }

    def made_by(self, tensor: Tensor) -> list[Call]:
        """The operations that give a tensor its first value."""
        return history(self.log, tensor)


def build_theirs(spec: PreparedSpec) -> Built:
    """The spec's own model. Raises what its constructors raise."""
    return _built(lambda: construct(spec, Mesh.single()))


def build_ours(page: Any) -> Built:
    """The page's model. Raises ValidationError where it can't be built."""
    try:
        return _built(lambda: page.build_model(Mesh.single(), device="meta"))
    except Exception as error:
        differ("SP505", f"the page's model cannot be built: {reason(error)}")


def _built(build: Callable[[], nn.Module]) -> Built:
    mesh, log = Mesh.single(), OpLog()
    with log:
        recording = record(lambda: materialize(build, mesh, device="meta"))
    return Built(recording.root, recording, log)
