"""The several stages of one rank as one model, by the names of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from .parameters import Table, parameter_table
from .stage_parts import held_parameter, set_stage_parts, stage_parts


class StageModels(nn.Module):
    """A rank's stages, first to last, for what asks after all that the rank holds: optimizer,
    checkpoints, norms.

    Parameters and buffers have their names in the whole model. A parameter of the first stage and
    the last, where one rank has both, is the first one's here; the other is its ``twin``.
    """

    def __init__(self, stages: Sequence[nn.Module]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        table: Table = {}
        self._home: dict[str, nn.Module] = {}  # by canonical name
        for stage in stages:
            own = parameter_table(stage)
            for name, record in own.items():
                table.setdefault(name, record)
                if record.tied_to is None:
                    self._home.setdefault(name, stage)
        self.__dict__["_parameter_table"] = table
        parts = stage_parts(stages[0])
        assert parts is not None
        set_stage_parts(self, parts, {})

    def twins(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each parameter that two stages here hold: the first's, and the last's twin of it."""
        for stage in self.stages:
            for name, record in parameter_table(stage).items():
                if record.tied_to is None and self._home[name] is not stage:
                    yield held_parameter(self._home[name], name), held_parameter(stage, name)

    def get_parameter(self, target: str) -> nn.Parameter:
        """The parameter of this name in the whole model."""
        record = parameter_table(self).get(target)
        canonical = target if record is None else record.tied_to or target
        if canonical not in self._home:
            raise AttributeError(f"no stage of this rank has a parameter {target}")
        return held_parameter(self._home[canonical], canonical)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Each by its canonical name, without the twins."""
        for name, stage in self._home.items():
            yield f"{prefix}.{name}" if prefix else name, held_parameter(stage, name)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What the stages' own hold, those of the first where two hold one name."""
        found: dict[str, Any] = {}
        for stage in self.stages:
            for name, value in stage.state_dict(*args, **kwargs).items():
                found.setdefault(name, value)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "the stages of a rank are not called one after the other: Pipeline.step runs them"
        )


def stage_models(model: nn.Module) -> tuple[nn.Module, ...]:
    """The stages of a rank, or the model itself where it is one."""
    return tuple(model.stages) if isinstance(model, StageModels) else (model,)
