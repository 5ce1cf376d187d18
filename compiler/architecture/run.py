"""A page's model, run once with instruments: where every fact of an architecture comes from."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from specc.runtime import Mesh, ParameterRecord, parameter_table, set_dropout_step
from specc.templates.diagnostic import SpecError

from ..diagnostics import fail
from ..meta_kernels import without_dynamo
from ..validate.inputs import refusal, signature
from ..validate.op_log import OpLog
from .built import build, line_of, opened_page, told
from .calls import AttentionCall, ModuleCall, Operation, Phase
from .layer_kinds import layer_kinds
from .made import tensor_digest
from .once import Once
from .operations import OperationLog
from .places import default_length, places_for
from .recorder import Recorder, bound, runtime_watched
from .recurrences import Recurrence

__all__ = ["Run", "build", "opened_page", "run_page"]

_PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.linear.default")


@dataclass(frozen=True, eq=False)
class Run:
    """What is known of a page's model once it has run, on the meta device and in one process.

    - `length`: the sequence length that figures are for; `places`: the one that it ran with, a
      number that nothing else in the model is, so that a dimension of it is a dimension of places.
    - `config`: the page's default config, None where it has none; `table`: its parameters.
    - `calls`: each module's forward calls by path, in training without labels ("train"; with
      labels, where the model has to have them), with labels, where it may have them, and in eval
      mode ("eval").
    - `attention`, `recurrences`: the attention calls and the recurrences of the forwards without
      and with labels; `operations`: the ATen calls of the former, `labelled` of the latter, empty
      where there is none.
    - `stands_for`: layers of a list that did not run themselves, each with the layer of its kind
      that ran in its place: all that is told of forwards is of the latter alone.
    - `made`: the operations of the constructors.
    """

    name: str
    page_text: str
    page_name: str  # of the module that the page's own classes are in
    model: nn.Module
    config: Any
    table: Mapping[str, ParameterRecord]
    length: int
    places: int
    calls: Mapping[Phase, Mapping[str, tuple[ModuleCall, ...]]]
    attention: tuple[AttentionCall, ...]
    recurrences: tuple[Recurrence, ...]
    operations: tuple[Operation, ...]
    labelled: tuple[Operation, ...]
    stands_for: Mapping[str, str]
    made: OpLog = field(repr=False)
    loss: str | None  # what the page says that its forward returns with labels

    def times(self, path: str) -> int:
        """How many modules of the model a module that ran stands for, itself included."""
        count, parts = 1, path.split(".")
        for end in range(1, len(parts) + 1):
            count *= 1 + self._others[".".join(parts[:end])]
        return count

    def needs_labels(self, path: str) -> bool:
        """Whether a module, or one around it, runs in a forward with labels alone."""
        parts = path.split(".")
        around = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        without, labelled = self.calls["train"], self.calls.get("labels", {})
        return any(module in labelled and module not in without for module in around)

    @functools.cached_property
    def _others(self) -> Counter[str]:
        """How many layers a layer ran for beside itself."""
        return Counter(self.stands_for.values())

    def ran(self, path: str) -> str:
        """The module that ran where `path` did not: `layers.5.mlp` -> `layers.0.mlp`."""
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            first = self.stands_for.get(".".join(parts[:end]))
            if first is not None:
                parts[:end] = first.split(".")
        return ".".join(parts)

    @property
    def output_weight(self) -> str | None:
        """The parameter whose product with the last activations is the model's first output."""
        returned = self.calls["train"][""][0].values
        width = returned[0].shape[-1] if returned and returned[0].shape else 0
        for operation in reversed(self.operations):
            if operation.attention is None and operation.op in _PRODUCTS:
                names = [f.name for f in operation.inputs if f.name and width in f.shape]
                if names and width in operation.outputs[0].shape:
                    return names[-1]
        return None


@without_dynamo()
def run_page(page_text: str, name: str, *, length: int | None = None) -> Run:
    """Builds the page's model on the meta device and runs its forward.

    `length` is the config's `max_position_embeddings` where it is left out. Raises SpecError: SP644
    where the text is no page, SP645 where its model can't be built, SP646 where its forward takes
    no tokens, SP647 where the forward does not run.
    """
    with opened_page(page_text, name) as page:
        made = OpLog()
        model, config = build(page, name, Mesh.single(), made)
        why = refusal(model)
        if why is not None:
            fail(
                "SP646",
                f"the model of `{name}` cannot be run: {why}",
                help="its forward has to take `input_ids` [b, s], and may take `labels`; all else "
                "needs a default",
            )
        length = default_length(config, model) if length is None else length
        places = places_for(length, model)
        if places != length:
            try:
                return _run(page_text, page, name, (model, config, made), length, places)
            except SpecError:  # some models take lengths of a certain kind only
                made = OpLog()
                model, config = build(page, name, Mesh.single(), made)
        return _run(page_text, page, name, (model, config, made), length, length)


def _run(
    text: str, page: Any, name: str, built: tuple[nn.Module, Any, OpLog], length: int, places: int
) -> Run:
    model, config, made = built
    recorder = Recorder(model, lambda tensor: tensor_digest(made, tensor))
    log = OperationLog(recorder)
    for path, tensor in (*model.named_buffers(), *model.named_parameters()):
        log.name(path, tensor)

    def quietly(function: Callable[[], Any]) -> Any:
        with recorder.silenced(), log.silenced():
            return function()

    once = Once(layer_kinds(model, vars(page)), quietly, recorder.meaning)
    with runtime_watched(recorder, vars(page)), _modules_watched(model, recorder, once):
        for phase, inputs in _phases(model, places).items():
            once.start()
            try:
                _forward(model, phase, inputs, recorder, log)
            except Exception as error:
                fail(
                    "SP647",
                    f"the forward of `{name}` does not run on the meta device"
                    f"{line_of(error, page.__name__)}: {told(error)}",
                    help="it is run without values, in training and in eval mode: nothing in it "
                    "may read what a tensor holds (`.item()`, `if x.max() > 0`)",
                )
    return Run(
        name,
        text,
        page.__name__,
        model,
        config,
        parameter_table(model),
        length,
        places,
        {phase: _frozen(calls) for phase, calls in recorder.calls.items()},
        tuple(recorder.attention),
        tuple(recorder.recurrences),
        tuple(log.operations.get("train", ())),
        tuple(log.operations.get("labels", ())),
        once.stands_for,
        made,
        getattr(page, "LOSS", None),
    )


def _phases(model: nn.Module, places: int) -> dict[Phase, dict[str, torch.Tensor]]:
    ids = torch.zeros((1, places), dtype=torch.int64, device="meta")
    labels = signature(model).get("labels")  # True: needed, False: with a default, None: unknown
    both = {"input_ids": ids, "labels": ids.clone()}
    alone = both if labels else {"input_ids": ids}
    found: dict[Phase, dict[str, torch.Tensor]] = {"train": alone, "eval": alone}
    if labels is False:
        found["labels"] = both
    return found


def _forward(
    model: nn.Module,
    phase: Phase,
    inputs: dict[str, torch.Tensor],
    recorder: Recorder,
    log: OperationLog,
) -> None:
    recorder.phase = phase
    model.train(phase != "eval")
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        if phase != "eval":
            stack.enter_context(log)
        stack.enter_context(
            torch.device("meta")
        )  # for what a forward makes and names no device for
        stack.enter_context(recorder)
        stack.enter_context(torch.set_grad_enabled(phase != "eval"))
        model(**inputs)


@contextmanager
def _modules_watched(model: nn.Module, recorder: Recorder, once: Once) -> Iterator[None]:
    """Inside, every module's forward is written down, or stood for by another's of its kind."""
    watched: list[Any] = []
    try:
        for path, module in model.named_modules():
            if type(module).forward is not nn.Module.forward:
                vars(module)["forward"] = _watched(module, path, recorder, once)
                watched.append(module)
        yield
    finally:
        for module in watched:
            del vars(module)["forward"]


def _watched(module: nn.Module, path: str, recorder: Recorder, once: Once) -> Callable[..., Any]:
    forward = module.forward

    def run(*args: Any, **kwargs: Any) -> Any:
        inputs = bound(forward, args, kwargs)

        def written(*args: Any, **kwargs: Any) -> Any:
            return recorder.run_forward(path, forward, bound(forward, args, kwargs), args, kwargs)

        with recorder.child(path, inputs) as give:
            out = once.run(path, module, written, args, kwargs)
            give(out)
        return out

    return run


def _frozen(calls: dict[str, list[ModuleCall]]) -> dict[str, tuple[ModuleCall, ...]]:
    return {path: tuple(of_one) for path, of_one in calls.items()}
