"""The same ATen calls: two train steps and one eval of both models, on the meta device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, NoReturn

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
    running a model may change it, and the place is looked for only where something differs.
    """
    why = refusal(theirs.root)
    if why is not None:
        return [_note(why)]
    configs = [v for b in theirs.recording.built.values() for v in b.arguments.values()]
    inputs = make_inputs(theirs.root, configs, "meta")
    once = kinds(ours.root, theirs.root)
    forms: Forms = {}
    try:
        their_log = run_on_meta(theirs.root, inputs, once, forms)
    except Exception as error:
        return [_note(f"the spec's own model does not run without values: {reason(error)}")]
    try:
        our_log = run_on_meta(ours.root, inputs, once, forms)
    except Exception as error:
        differ("SP505", f"the page's model does not run, and the spec's does: {reason(error)}")
    # An assignment that nothing reads is no part of a page, even where it computes something.
    if our_log.calls == their_log.calls or live(our_log)[0] == live(their_log)[0]:
        return []
    expected = live(run_on_meta(build_theirs(spec).root, inputs, once, forms, watch=True))
    if expected[0] != live(their_log)[0]:
        return [_note("two runs of the spec's own model do not make the same calls")]
    _refuse(live(run_on_meta(build_ours(page).root, inputs, once, forms, watch=True)), expected)


def _note(why: str) -> Diagnostic:
    return Diagnostic("SP520", f"the operations of the page were not compared: {why}")


def run_on_meta(
    root: nn.Module, inputs: Inputs, once: Mapping[str, int], forms: Forms, *, watch: bool = False
) -> OpLog:
    log = OpLog(forms)
    for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
        log.name(name, tensor)
    for name, tensor in inputs.train.items():
        log.name(name, tensor)
    run_once(root, once, log)
    say = _watch(root, log) if watch else lambda _: None
    with torch.random.fork_rng(devices=[]):
        root.train()
        for step in range(STEPS):
            say(f"train step {step + 1}")
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
            say(name)
            with log, torch.no_grad():
                log.note("output", _form(root(**call)))
    return log


def _form(output: Any) -> Any:
    return (type(output).__name__, tensors(output))


def _watch(root: nn.Module, log: OpLog) -> Callable[[str], None]:
    """Lets the log know which module is running; returns what to tell the phase's name."""
    stack: list[str] = []
    phase = [""]

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            stack.append(path)
            log.place = (path, phase[0])

        return hook

    def leave(*_: Any) -> None:
        stack.pop()
        log.place = (stack[-1], phase[0]) if stack else ("", f"{phase[0]}, after forward")

    for path, module in root.named_modules():
        module.register_forward_pre_hook(enter(path))
        module.register_forward_hook(leave)

    def say(name: str) -> None:
        phase[0] = name
        log.place = ("", name)

    return say


Calls = tuple[list[Call], list[tuple[str, str]]]


def _refuse(ours: Calls, theirs: Calls) -> NoReturn:
    """Raise a ValidationError for the first call that differs."""
    pairs = enumerate(zip_longest(ours[0], theirs[0]))
    number, our, their = next((i, one, other) for i, (one, other) in pairs if one != other)
    mine, other = (shown(call) if call else "nothing more" for call in (our, their))
    if our and their and our.op == their.op == "gradients":
        mine, other = _missing(our, their)
    our_place, place = (p[number] if number < len(p) else ("", "") for p in (ours[1], theirs[1]))
    path = _common(our_place[0], place[0]) or place[0]
    where = f"in `{path}`, " if path else ""
    differ(
        "SP503",
        f"{where}{place[1] or our_place[1]}: operation {number} is {mine} on the page and {other} "
        "in the spec's model",
        path=path,
    )


def _common(one: str, other: str) -> str:
    """The innermost module that both paths lead through."""
    parts = zip(one.split("."), other.split("."), strict=False)
    return ".".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))


def _missing(ours: Call, theirs: Call) -> tuple[str, str]:
    pairs = zip(ours.args, theirs.args, strict=False)
    return next(((str(a), str(b)) for a, b in pairs if a != b), ("gradients", "others"))
