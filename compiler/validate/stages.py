"""The page in stages: run one after another, as a pipeline would, they give the whole's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from specc.runtime import Constant, Mesh, materialize, parameter_table
from specc.runtime.page import cut_places
from specc.runtime.pipeline_cut import CutPlaces, Stages, keep_stage
from specc.runtime.stage_parts import stage_parts

from .copies import Copy
from .failure import differ, reason
from .inputs import differentiated, make_inputs, tensors
from .page_module import page_module
from .session import FIRST_STEP, Numbers, same_start

STAGES = 3  # one at each end, and one that has neither
# Of a tensor's largest entry. The operations are those of the whole, but the two ends' gradients of
# one table are added at the end: float32, and a few summands.
TOLERANCE = 1e-5


def compare_stages(text: str, args: tuple[Any, ...], copy: Copy, expected: Numbers) -> None:
    """Raises ValidationError (SP506) where a page that says that it can be cut gives others than
    ``expected``, the numbers of the first train step of the whole, when it is run in stages.

    ``args``: what its `build_model` is given beside the mesh. Each stage is built as a rank of a
    pipeline builds it, by a module of its own of the page's ``text`` (what a page keeps outside of
    its model is another rank's), is handed tokens of its own and the one tensor that the stage
    before it returned, and has a backward of its own.
    """
    with ExitStack() as modules:
        pages = [modules.enter_context(page_module(text)) for _ in range(STAGES)]
        _compare(pages, args, copy, expected)


def _compare(pages: list[Any], args: tuple[Any, ...], copy: Copy, expected: Numbers) -> None:
    _, places = cut_places(pages[0])
    wanted = {
        (what, whose): tensor
        for (what, whose, number), tensor in expected.items()
        if (what == "output" and whose == FIRST_STEP and number == 0)
        or what == f"gradient in {FIRST_STEP}"
    }
    if places is None or ("output", FIRST_STEP) not in wanted:
        return
    try:
        stages = [_stage(page, args, places, n, expected) for n, page in enumerate(pages)]
        inputs = make_inputs(stages[0], [new for _, new in copy.configs], "cpu").train
        found = _run(stages, inputs)
    except Exception as error:
        _refuse(f"do not run: {reason(error)}", copy)
    for (what, whose), tensor in wanted.items():
        name = "the model's output" if what == "output" else f"the gradient of `{whose}`"
        own = found.get((what, whose))
        if own is None:
            _refuse(f"have not {name}", copy)
        if own.shape != tensor.shape or not _close(own, tensor):
            _refuse(f"give another number for {name}", copy)


def _refuse(what: str, copy: Copy) -> NoReturn:
    differ(
        "SP506",
        f"the page's stages, run one after another, {what}",
        note=f"compared with the whole page {copy.described()}",
    )


def _stage(
    page: Any, args: tuple[Any, ...], places: CutPlaces, number: int, expected: Numbers
) -> nn.Module:
    mesh = Mesh.single().at_stage(number, STAGES)

    def keep(model: nn.Module) -> None:
        layers = model.get_submodule(places.layers[0])
        assert isinstance(layers, nn.ModuleList)
        keep_stage(model, places, Stages((0, 1, 2), _shares(len(layers))), mesh)
        # The values are known: drawing them again would take most of the time.
        model.__dict__["_parameter_table"] = {
            name: replace(record, law=Constant(0.0)) if record.law is not None else record
            for name, record in parameter_table(model).items()
        }

    model: nn.Module = materialize(lambda: page.build_model(mesh, *args), mesh, wrap=keep)
    with torch.no_grad():
        for name, parameter in _canonical(model):
            parameter.copy_(expected["initial value", name, 0])
    return model


def _canonical(stage: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a stage by the names that the whole has them under."""
    parts = stage_parts(stage)
    assert parts is not None  # set by keep_stage
    for name, parameter in stage.named_parameters():
        yield parts.table[name].tied_to or name, parameter


def _shares(layers: int) -> tuple[int, int, int]:
    """A stage in the middle may have none: what else it runs tells as much."""
    return (1, layers - 2, 1) if layers > 1 else (0, layers, 0)


def _run(stages: list[nn.Module], inputs: dict[str, Tensor]) -> dict[tuple[str, str], Tensor]:
    """The output and the gradients of all stages, by the names of the whole."""
    received: list[Tensor] = []
    sent: list[Tensor] = []
    output: Any = None
    with same_start(*stages):
        for number, stage in enumerate(stages):
            stage.train()
            given = {name: value.clone() for name, value in inputs.items()}
            if received:
                given["hidden"] = received[-1]
            if number < STAGES - 1:
                given.pop("labels", None)
                sent.append(stage(**given))
                if not isinstance(sent[-1], Tensor):
                    raise TypeError(f"stage {number} returns {type(sent[-1]).__name__}, no tensor")
                received.append(sent[-1].detach().requires_grad_())
            else:
                output = stage(**given)
        differentiated(output).backward()  # type: ignore[no-untyped-call]
        for number in reversed(range(STAGES - 1)):
            if received[number].grad is None:
                raise ValueError(f"stage {number + 1} reads nothing of what it is handed")
            torch.autograd.backward(sent[number], received[number].grad)
    found: dict[tuple[str, str], Tensor] = {("output", FIRST_STEP): tensors(output)[0].detach()}
    for stage in stages:
        for name, parameter in _canonical(stage):
            if (gradient := parameter.grad) is not None:
                key = (f"gradient in {FIRST_STEP}", name)
                found[key] = found[key] + gradient if key in found else gradient
    return found


def _close(ours: Tensor, theirs: Tensor) -> bool:
    difference = (ours.double() - theirs.double()).abs()
    limit = TOLERANCE * theirs.double().abs().max() if theirs.numel() else 0.0
    return bool((difference <= limit).all())
