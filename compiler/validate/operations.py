"""The same ATen calls: two train steps and one eval of both models, on the meta device."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from specc.runtime import set_dropout_step
from specc.templates.diagnostic import Diagnostic

from .build import Built, build_ours, build_theirs
from .failure import differ, reason
from .inputs import Inputs, differentiated, make_inputs, refusal, tensors
from .layers import kinds, run_once
from .op_log import Call, Forms, OpLog, live, shown

STEPS = 2


def compare_operations(spec: Any, page: Any, ours: Built, theirs: Built) -> list[Diagnostic]:
    """Raises ValidationError at the first call that differs; a note where calls can't be compared.

    Layers of one kind run once (`layers.py`). `spec` and `page` are there to build both again:
    running a model may change it, and places are looked for only where something differs.
    """
    why = refusal(theirs.root)
    if why is not None:
        return [_note(why)]
    configs = [v for b in theirs.recording.built.values() for v in b.arguments.values()]
    inputs = make_inputs(theirs.root, configs, "meta")
    once = kinds(ours.root, theirs.root)
    forms: Forms = {}
    try:
        their_log = _run(theirs.root, inputs, once, forms)
    except Exception as error:
        return [_note(f"the spec's own model does not run without values: {reason(error)}")]
    try:
        our_log = _run(ours.root, inputs, once, forms)
    except Exception as error:
        differ("SP505", f"the page's model does not run, and the spec's does: {reason(error)}")
    if our_log.calls == their_log.calls:
        return []
    # Slower, and with places: what nothing reads is left out of both, every layer runs.
    their_calls = live(_run(build_theirs(spec).root, inputs, {}, forms, watch=True))
    again = live(_run(build_theirs(spec).root, inputs, {}, forms, watch=True))
    if their_calls != again:
        return [_note("two runs of the spec's own model do not make the same calls")]
    our_calls = live(_run(build_ours(page).root, inputs, {}, forms, watch=True))
    _refuse(our_calls, their_calls)
    return []


def _note(why: str) -> Diagnostic:
    return Diagnostic("SP520", f"the operations of the page were not compared: {why}")


def _run(
    root: nn.Module, inputs: Inputs, once: Mapping[str, int], forms: Forms, *, watch: bool = False
) -> OpLog:
    log = OpLog(forms)
    for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
        log.name(name, tensor)
    for name, tensor in inputs.train.items():
        log.name(name, tensor)
    run_once(root, once, log)
    phase = _watch(root, log) if watch else {}
    with torch.random.fork_rng(devices=[]):
        root.train()
        for step in range(STEPS):
            phase["name"] = f"in train step {step + 1}"
            set_dropout_step(root, seed=0, step=step, first_sequence=0)
            root.zero_grad(set_to_none=True)
            with log:
                output = root(**inputs.train)
                log.note("output", _form(output))
                differentiated(output).backward()  # type: ignore[no-untyped-call]
                grads = [(n, p.grad) for n, p in root.named_parameters()]
                log.note("gradients", grads)
        root.eval()
        for name, call in inputs.evals.items():
            phase["name"] = f"in {name}"
            with log, torch.no_grad():
                log.note("output", _form(root(**call)))
    return log


def _form(output: Any) -> Any:
    return (type(output).__name__, tensors(output))


def _watch(root: nn.Module, log: OpLog) -> dict[str, str]:
    """Lets the log know which module is running; returns where to write the phase's name."""
    phase: dict[str, str] = {}
    stack: list[str] = []

    def say() -> None:
        log.place = (f"`{stack[-1]}` " if stack and stack[-1] else "") + phase["name"]

    def enter(path: str) -> Any:
        def hook(*_: Any) -> None:
            stack.append(path)
            say()

        return hook

    def leave(*_: Any) -> None:
        stack.pop()
        if stack:
            say()
        else:
            log.place = "the backward pass " + phase["name"]

    for path, module in root.named_modules():
        module.register_forward_pre_hook(enter(path))
        module.register_forward_hook(leave)
    return phase


def _refuse(ours: tuple[list[Call], list[str]], theirs: tuple[list[Call], list[str]]) -> None:
    for number, (our, their) in enumerate(zip_longest(ours[0], theirs[0])):
        if our == their:
            continue
        places = theirs[1] if their is not None else ours[1]
        place = places[number] or "the model"
        mine, other = (shown(c) if c else "at its end" for c in (our, their))
        if our and their and our.op == their.op == "gradients":
            mine, other = _missing(our, their)
        differ(
            "SP503",
            f"{place}: operation {number} is {mine} on the page and {other} in the spec's model",
        )


def _missing(ours: Call, theirs: Call) -> tuple[str, str]:
    pairs = zip(ours.args, theirs.args, strict=False)
    return next(((str(a), str(b)) for a, b in pairs if a != b), ("gradients", "others"))
