"""A rank's part of a pipeline: runs its actions, sends and receives what lies between stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .data_parallel import accumulate
from .mesh import Mesh
from .pipeline_schedules import SPLIT, Action, Kind, Plan, forward_plan, plan
from .pipeline_split import SplitBackward

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_DIMENSIONS = 8  # more than hidden states have

Form = tuple[tuple[int, ...], torch.dtype]
Key = tuple[int, int]  # stage and micro-batch


class Work(Protocol):
    """What a pipeline runs: the model's own part of a step."""

    def begin_backward(self, stage: int, number: int) -> None:
        """Says which micro-batch the backward that comes is of, for what it may compute again."""

    def forward(self, stage: int, number: int, hidden: Tensor | None) -> Tensor:
        """The stage's output, or of the last stage the scalar that backward starts from."""

    def shape(self, number: int) -> Sequence[int]:
        """Of the micro-batch's tokens: as its hidden states' follows from it, on all ranks."""


class Pipeline:
    """The stages of this rank. ``models``: by their numbers; ``seats``: the rank of each stage.

    The stages' outputs have one shape and dtype for each shape of tokens, which the sender tells
    once. All ranks of pp call the methods together.
    """

    def __init__(
        self,
        models: Mapping[int, nn.Module],
        mesh: Mesh,
        schedule: str,
        seats: tuple[int, ...],
        device: torch.device,
    ) -> None:
        self.models = models
        self.mesh = mesh
        self.schedule = schedule
        self.seats = seats
        self.last = len(seats) - 1
        self.device = device
        # Of the outputs of a stage that another rank receives or sends, by the tokens' shape.
        self.forms: dict[tuple[int, tuple[int, ...]], Form] = {}

    def step(self, work: Work, micro_batches: int) -> list[Tensor]:
        """Forward and backward of all micro-batches; gradients are added to the parameters'.

        Returns the last stage's losses, detached, in order; of another rank none.
        """
        per_rank = len(self.seats) // self.mesh.pp.size
        chosen = plan(self.schedule, self.mesh.pp.size, micro_batches, per_rank)
        return _Turnover(self, work, chosen, micro_batches).run()

    @torch.no_grad()
    def evaluate(self, work: Work, micro_batches: int) -> list[Tensor]:
        """Forward only; returns as ``step`` does."""
        chosen = forward_plan(self.seats, micro_batches)
        return _Turnover(self, work, chosen, micro_batches).run()

    @property
    def splits(self) -> bool:
        """Whether the gradients of weights are computed apart."""
        return self.schedule in SPLIT


class _Turnover:
    """One step or one evaluation."""

    def __init__(self, pipeline: Pipeline, work: Work, plan: Plan, count: int) -> None:
        self.pipeline = pipeline
        self.work = work
        self.plan = plan
        self.count = count  # of micro-batches
        self.last = plan.stages - 1
        self.rank = pipeline.mesh.pp.rank
        self.hidden: dict[Key, Tensor] = {}  # a stage's input
        self.output: dict[Key, Tensor] = {}
        self.gradient: dict[Key, Tensor] = {}  # of a stage's output
        self.arriving: dict[tuple[Kind, int, int], dist.Work] = {}
        self.leaving: list[tuple[dist.Work, Tensor]] = []
        self.losses: dict[int, Tensor] = {}
        self.backwards = dict.fromkeys(pipeline.models, 0)
        self.split = {
            stage: SplitBackward(model, first=stage == 0)
            for stage, model in pipeline.models.items()
        }
        self.trains = torch.is_grad_enabled()

    def run(self) -> list[Tensor]:
        does: Mapping[Kind, Callable[[Action], None]] = {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.INPUT: self.backward,
            Kind.WEIGHT: self.weight,
            Kind.SEND_HIDDEN: self.send_hidden,
            Kind.RECEIVE_HIDDEN: self.receive_hidden,
            Kind.SEND_GRADIENT: self.send_gradient,
            Kind.RECEIVE_GRADIENT: self.receive_gradient,
        }
        for action in self.plan.orders[self.rank]:
            does[action.kind](action)
            self.let_go()
        for sent, _ in self.leaving:
            sent.wait()
        if self.pipeline.splits and self.trains:
            for split in self.split.values():
                split.finish()
        return [self.losses[number] for number in sorted(self.losses)]

    def forward(self, action: Action) -> None:
        stage, number = action.stage, action.micro_batch
        self.arrived(Kind.RECEIVE_HIDDEN, stage, number)
        hidden = self.hidden.get((stage, number))
        if hidden is not None:
            hidden.requires_grad_(self.trains)
        output = self.work.forward(stage, number, hidden)
        if output.dim() > _DIMENSIONS or output.dtype not in _DTYPES:
            raise ValueError(
                f"stage {stage} returned a tensor {list(output.shape)} of {output.dtype}; stages "
                f"hand on floating numbers of {_DIMENSIONS} dimensions at most"
            )
        if self.pipeline.splits and output._is_view():
            output = output.clone()  # its graph is let go in place
        if self.trains:
            self.output[stage, number] = output
        else:
            self.hidden.pop((stage, number), None)
        if stage == self.last:
            self.losses[number] = output.detach()
        elif self.plan.seats[stage + 1] == self.rank:
            self.hidden[stage + 1, number] = output.detach()
        else:
            self.output[stage, number] = output  # until it is sent

    def backward(self, action: Action) -> None:
        """Of a whole stage, or of its input."""
        stage, number = action.stage, action.micro_batch
        self.arrived(Kind.RECEIVE_GRADIENT, stage, number)
        output = self.output.pop((stage, number))
        gradient = self.gradient.pop((stage, number), None)
        hidden = self.hidden.pop((stage, number), None)
        self.begin_backward(stage, number)
        if not self.pipeline.splits:
            torch.autograd.backward(output, gradient)
            found = None if hidden is None else hidden.grad
        else:
            found = self.split[stage].input(number, output, gradient, hidden)
        if hidden is not None:
            if found is None:
                raise ValueError(f"stage {stage} returns what does not depend on its hidden states")
            self.gradient[stage - 1, number] = found
        if action.kind is Kind.BACKWARD and self.pipeline.splits:
            self.split[stage].weight(number)

    def weight(self, action: Action) -> None:
        self.split[action.stage].weight(action.micro_batch)

    def begin_backward(self, stage: int, number: int) -> None:
        """FSDP reduces in the last backward of a stage, where each is whole."""
        self.work.begin_backward(stage, number)
        self.backwards[stage] += 1
        last = not self.pipeline.splits and self.backwards[stage] == self.count
        accumulate(self.pipeline.models[stage], last=last)

    def send_hidden(self, action: Action) -> None:
        key = (action.stage, action.micro_batch)
        output = self.output[key] if self.trains else self.output.pop(key)
        sent = output.detach().contiguous()
        to = self.plan.seats[action.stage + 1]
        self.tell_form(action, sent, to)
        self.send(sent, to)

    def receive_hidden(self, action: Action) -> None:
        source = self.plan.seats[action.stage - 1]
        shape, dtype = self.hear_form(action, source)
        key = (action.stage, action.micro_batch)
        self.hidden[key] = torch.empty(shape, dtype=dtype, device=self.pipeline.device)
        self.receive(action, self.hidden[key], source)

    def send_gradient(self, action: Action) -> None:
        """Of the stage's input: it belongs to the output of the stage before."""
        gradient = self.gradient.pop((action.stage - 1, action.micro_batch))
        self.send(gradient.contiguous(), self.plan.seats[action.stage - 1])

    def receive_gradient(self, action: Action) -> None:
        key = (action.stage, action.micro_batch)
        # Its own output has been made by now: the gradient has its form.
        self.gradient[key] = torch.empty_like(
            self.output[key], memory_format=torch.contiguous_format
        )
        self.receive(action, self.gradient[key], self.plan.seats[action.stage + 1])

    def send(self, tensor: Tensor, rank: int) -> None:
        work = dist.isend(tensor, group=self.group, group_dst=rank)
        assert work is not None
        self.leaving.append((work, tensor))

    def receive(self, action: Action, tensor: Tensor, rank: int) -> None:
        work = dist.irecv(tensor, group=self.group, group_src=rank)
        assert work is not None
        self.arriving[action.kind, action.stage, action.micro_batch] = work

    def arrived(self, kind: Kind, stage: int, number: int) -> None:
        work = self.arriving.pop((kind, stage, number), None)
        if work is not None:
            work.wait()

    def let_go(self) -> None:
        """Gives up the memory of what has been sent."""
        while self.leaving and self.leaving[0][0].is_completed():
            self.leaving.pop(0)[0].wait()

    @property
    def group(self) -> dist.ProcessGroup:
        group = self.pipeline.mesh.pp.group
        assert group is not None
        return group

    def tell_form(self, action: Action, tensor: Tensor, rank: int) -> None:
        """Shape and dtype, before the first of its kind; later ones have to have the same."""
        form = (tuple(tensor.shape), tensor.dtype)
        key = (action.stage, tuple(self.work.shape(action.micro_batch)))
        known = self.pipeline.forms.get(key)
        if known is None:
            self.pipeline.forms[key] = form
            self.send(_written(form, self.pipeline.device), rank)
        elif known != form:
            raise ValueError(
                f"stage {action.stage} returned {list(form[0])} {form[1]}, and for tokens of the "
                f"same shape before {list(known[0])} {known[1]}"
            )

    def hear_form(self, action: Action, rank: int) -> Form:
        key = (action.stage - 1, tuple(self.work.shape(action.micro_batch)))
        if key not in self.pipeline.forms:
            row = torch.empty(2 + _DIMENSIONS, dtype=torch.int64, device=self.pipeline.device)
            dist.recv(row, group=self.group, group_src=rank)
            self.pipeline.forms[key] = _read(row)
        return self.pipeline.forms[key]


def _written(form: Form, device: torch.device) -> Tensor:
    shape, dtype = form
    row = [len(shape), _DTYPES.index(dtype), *shape]
    return torch.tensor(row + [0] * (2 + _DIMENSIONS - len(row)), device=device)


def _read(row: Tensor) -> Form:
    dimensions, dtype, *shape = row.tolist()
    return tuple(shape[:dimensions]), _DTYPES[dtype]
