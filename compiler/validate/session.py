"""A session: two train steps and one eval of a model, with every number that comes out of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from specc.runtime import set_dropout_step

from .inputs import Inputs, differentiated, tensors

STEPS, RATE = 2, 0.1
FIRST_STEP = "train step 1"

# (what, whose, number): ("output", "train step 1", 0), ("gradient in train step 1", "x.weight", 0)
Numbers = dict[tuple[str, str, int], Tensor]


def run_session(
    model: nn.Module, inputs: Inputs | None, *, say: Callable[[str], None] = lambda _: None
) -> Numbers:
    """Initial values; then each train step's outputs and gradients, and the outputs in eval mode.

    Between the steps every parameter moves against its gradient. Generators start the same for
    every phase, and are the caller's again afterwards. Without inputs, initial values only. `say`
    is told the name of each phase before it runs.
    """
    numbers: Numbers = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        numbers["initial value", name, 0] = tensor.detach().clone()
    if inputs is None:
        return numbers
    with _one_thread(), _generators_kept():
        for step in range(STEPS):
            phase = f"train step {step + 1}"
            say(phase)
            _seed(model, step)
            model.train()
            model.zero_grad(set_to_none=True)
            output = model(**inputs.train)
            _take(numbers, phase, output)
            differentiated(output).backward()  # type: ignore[no-untyped-call]
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    numbers[f"gradient in {phase}", name, 0] = parameter.grad.clone()
            _step(model)
        model.eval()
        for phase, call in inputs.evals.items():
            say(phase)
            _seed(model, STEPS)
            with torch.no_grad():
                _take(numbers, phase, model(**call))
    return numbers


@contextmanager
def same_start(*models: nn.Module) -> Iterator[None]:
    """As the first train step of a session begins: `models` are the parts of one."""
    with _one_thread(), _generators_kept():
        for model in models:
            _seed(model, 0)
        yield


def is_finite(numbers: Numbers) -> bool:
    """Whether a comparison of the outputs says anything: NaN equals nothing, and hides all."""
    return all(bool(t.isfinite().all()) for (what, _, _), t in numbers.items() if what == "output")


def _take(numbers: Numbers, phase: str, output: Any) -> None:
    for number, tensor in enumerate(tensors(output)):
        numbers["output", phase, number] = tensor.detach().clone()


@torch.no_grad()
def _step(model: nn.Module) -> None:
    """Against the gradient, by a tenth of the parameters' size at most."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            size = parameter.abs().max().clamp(min=0.1)
            scale = (size / parameter.grad.abs().max().clamp(min=1e-6)).clamp(max=1.0)
            parameter.sub_(parameter.grad * scale, alpha=RATE)


def _seed(model: nn.Module, step: int) -> None:
    torch.default_generator.manual_seed(step)
    random.seed(step)
    set_dropout_step(model, seed=0, step=step, first_sequence=0)


@contextmanager
def _generators_kept() -> Iterator[None]:
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small tensors are slower on many threads, and sums stay in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
