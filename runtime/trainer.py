"""Trainer: the model, its optimizer, and what one step and one evaluation do."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from .data import MicroBatch, random_seed
from .data_parallel import accumulate, expert_groups, layers, shard
from .gradients import clip_scale, gradient_norm, sum_replicated_gradients
from .loss import local_loss
from .mesh import Mesh
from .micro_batch import Turn, begin_micro_batch
from .moe_router import finish_step
from .optimizer import adamw, set_rate
from .page import LOSSES, Page, layers_sentence
from .parameters import parameter_table
from .pipeline import Pipeline
from .pipeline_build import build_pipeline, refuse_schedule
from .pipeline_shared import refresh_twins, sum_over_stages
from .positions import Positions, own_places
from .recompute import Recompute, apply_recompute
from .refusal import Refusal
from .stage_models import stage_models
from .step_record import StepRecord


@dataclass(frozen=True)
class Training:
    """How a model is trained. From ``accumulation`` on, nothing changes a loss beyond rounding.

    ``clip``: the highest norm of all gradients, 0 for none. ``fsdp`` None: where the run needs it;
    ``zero`` is its stage. The last three are of a pipeline: its schedule, how many stages a rank
    has (None: as the schedule has them), and how many layers each stage (None: by cost).
    """

    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    clip: float = 1.0
    accumulation: int = 1
    compile: bool = False
    zero: int = 3
    fsdp: bool | None = None
    recompute: Recompute = Recompute()
    schedule: str = "1f1b"
    stages_per_rank: int | None = None
    layers_per_stage: tuple[int, ...] | None = None


class Trainer:
    """One model in training. There to be read: ``model`` (what this rank has of it),
    ``optimizer``, ``mesh``, ``sharded`` (by FSDP), ``pipeline`` (None without one) and
    ``has_routers`` (on any stage) and ``attached_losses`` (of the step before).

    Raises Refusal where the mesh does not divide the model, the page cannot be cut into stages or
    its LOSS summed over the ranks and micro-batches that are asked for, a schedule does not go with
    the rest, or a module to recompute is not there.
    """

    def __init__(
        self,
        page: Page,
        config: Any,
        mesh: Mesh,
        how: Training = Training(),
        *,
        device: str = "cpu",
        seed: int = 0,
        mark: Callable[[str], None] = lambda where: None,
    ) -> None:
        parts = mesh.dp_cp.size * how.accumulation
        if page.loss not in LOSSES and parts > 1:
            raise Refusal(
                f"{page.path} states LOSS = {page.loss!r}, and only "
                f"{' and '.join(map(repr, LOSSES))} can be summed over {mesh.dp.size} "
                f"data-parallel ranks x {mesh.cp.size} context-parallel ones x {how.accumulation} "
                "accumulated micro-batches."
            )
        refuse_schedule(how, mesh)
        self.page = page
        self.mesh = mesh
        # One process sees one GPU: launch.process_group chose it.
        current = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
        self.device = torch.device(current)
        self.seed = seed
        self.clip = how.clip
        self.sharded = False
        self.attached_losses: dict[str, Tensor] = {}
        self._recomputes = how.recompute.granularity != "none"
        self._mark = mark

        def wrap(model: nn.Module) -> None:
            # Layers are compiled in place, so names stay: around the recompute, so that a graph
            # holds it, and before FSDP puts its hooks around both.
            units = layers(model)
            self.sharded |= _needs_sharding(model, mesh) if how.fsdp is None else how.fsdp
            apart = expert_groups(model) if how.compile and self.sharded else []
            if units or mesh.pp.size == 1:  # a stage may have none
                apply_recompute(units, how.recompute, apart=apart)
            if how.compile:
                from .compile import compile_layers  # with all of torch.compile

                compile_layers(units, apart=apart)
            if self.sharded:
                shard(model, mesh, dtype=mesh.dtype, zero=how.zero)
                # FSDP warns of a page that returns a view: only adding in place to it would hurt.
                warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")

        self.pipeline: Pipeline | None = None
        if mesh.pp.size == 1:
            self.model = page.build(mesh, config, seed=seed, device=str(self.device), wrap=wrap)
        else:
            self.model, self.pipeline = build_pipeline(
                page, config, mesh, how, seed=seed, device=self.device, wrap=wrap
            )
        self.stages = stage_models(self.model)
        self.has_routers = self._on_any_stage(has_routers(self.model))
        self.optimizer = adamw(
            self.model,
            lr=0.0,
            betas=how.betas,
            weight_decay=how.weight_decay,
            # On a CPU it would cost seconds to compile and win nothing.
            compiled=how.compile and self.device.type == "cuda",
        )

    def step(self, step: int, rate: float, batches: Sequence[MicroBatch]) -> tuple[Tensor, Tensor]:
        """Take step ``step`` (from 0) with these micro-batches of this rank.

        Returns this rank's part of the loss, which ``summed`` adds up, and the norm of all
        gradients before clipping: scalars on the device, so nothing waits for it.
        """
        loss = self.gradients(step, batches)
        norm = gradient_norm(self.model, self.mesh)
        set_rate(self.optimizer, rate)
        self.optimizer.step(scale=clip_scale(norm, self.clip) if self.clip else None)
        self.optimizer.zero_grad(set_to_none=True)
        if self.has_routers:
            self.attached_losses = finish_step(self.stages, self.mesh)
        return loss, norm

    def gradients(self, step: int, batches: Sequence[MicroBatch]) -> Tensor:
        """Add the step's gradients, summed over the ranks that hold a copy, to each parameter's.

        Micro-batches hold whole sequences, the same on the ranks that share them. Returns this
        rank's part of the loss.
        """
        self.model.train()
        own = [self._own(batch) for batch in batches]
        tokens = self._over_ranks(sum(batch.tokens for batch in own))
        own = [batch.to(self.device) for batch in own]
        loss = torch.zeros((), device=self.device)
        if self.pipeline is not None:
            refresh_twins(self.model)
            for part in self.pipeline.step(_Step(self, own, tokens, step), len(own)):
                loss += part
        else:
            for index, batch in enumerate(own):
                turn = Turn(self.seed, step, batch.first_sequence, index, len(own))
                self._begin(self.model, turn)
                accumulate(self.model, last=index == len(own) - 1)
                part = self._loss(self._output(self.model, batch), batch, tokens)
                part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                loss += part.detach()
        for stage in self.stages:
            sum_replicated_gradients(stage, self.mesh)
        sum_over_stages(self.model, self.mesh)
        return loss

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> float:
        """The mean loss per token of all ranks' micro-batches, in eval mode.

        Raises Refusal where none of their labels counts.
        """
        self.model.eval()
        total = torch.zeros((), device=self.device)
        count = 0
        # A mean of one call is of no use where calls differ in size: sums here, too.
        for group in self._groups(map(self._own, batches)):
            self._mark("a held-out loss")
            count += sum(b.tokens if self.page.loss in LOSSES else 1 for b in group)
            group = [batch.to(self.device) for batch in group]
            if self.pipeline is not None:
                refresh_twins(self.model)
                for part in self.pipeline.evaluate(_Step(self, group, 1), len(group)):
                    total += part
            else:
                total += self._loss(self._output(self.model, group[0]), group[0], 1)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # no backward comes that would do it
        counted = int(self._over_ranks(count))
        if not counted:
            raise Refusal("None of the held-out sequences has a label that counts.")
        return float(self.summed(total)) / counted

    def summed(self, local: Tensor) -> Tensor:
        """The sum over all ranks of each one's part."""
        local = local.clone()
        if self.mesh.size > 1:
            dist.all_reduce(local)
        return local

    def _own(self, batch: MicroBatch) -> MicroBatch:
        """This rank's places of each sequence; where documents begin it has to know of all."""
        if self.mesh.cp.size == 1:
            return batch
        places = own_places(batch.input_ids.shape[1], self.mesh)
        ids, labels = batch.input_ids[:, places], batch.labels[:, places]
        own = replace(batch, input_ids=ids, labels=labels)
        # A choice of places is a copy, and no longer pinned.
        return own.pin_memory() if batch.input_ids.is_pinned() else own

    def _over_ranks(self, count: int) -> Tensor:
        """The sum of a count over the ranks that see different tokens."""
        # Filled there, not copied: a copy would wait for the device.
        total = torch.full((), count, dtype=torch.int64, device=self.device)
        if self.mesh.dp_cp.size > 1:
            dist.all_reduce(total, group=self.mesh.dp_cp.group)
        return total

    def _groups(self, batches: Iterable[MicroBatch]) -> Iterator[list[MicroBatch]]:
        """So many at a time as run at once: in a pipeline enough to keep each stage busy."""
        at_once = 1 if self.pipeline is None else 4 * self.mesh.pp.size
        found = iter(batches)
        while group := list(itertools.islice(found, at_once)):
            yield group

    def _on_any_stage(self, here: bool) -> bool:
        if self.mesh.pp.size == 1:
            return here
        found = torch.tensor(int(here), device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self.mesh.pp.group)
        return bool(found)

    def _begin(self, model: nn.Module, turn: Turn, stage: int = 0) -> None:
        """Before a micro-batch's forward."""
        self._mark(f"step {turn.step + 1}")
        begin_micro_batch(model, turn)
        # For attention dropout and a user's nn.Dropout. The same on all tp and cp ranks: what they
        # hold in common has to stay equal.
        torch.manual_seed(random_seed(self.seed, turn.step, turn.first_sequence, stage))

    def _output(self, model: nn.Module, batch: MicroBatch, hidden: Tensor | None = None) -> Any:
        """What the model, or a stage that is given ``hidden``, returns; the last has the labels."""
        given: dict[str, Any] = {} if hidden is None else {"hidden": hidden}
        if batch.starts is not None:
            # On the host: kernels are told lengths by the host.
            given["positions"] = Positions.of(batch.input_ids, self.mesh, batch.starts)
        if self.pipeline is None or model is self.pipeline.models.get(self.pipeline.last):
            given["labels"] = batch.labels
        try:
            return model(input_ids=batch.input_ids, **given)
        except (ValueError, NotImplementedError) as error:
            sentence = layers_sentence(error)
            if sentence is None:
                raise
            raise Refusal(f"{self.page.path} cannot be trained so: {sentence}") from error

    def _loss(self, output: Any, batch: MicroBatch, tokens: int | Tensor) -> Tensor:
        if self.page.loss in LOSSES:
            try:
                return local_loss(output, batch.labels, str(self.page.loss), self.mesh, tokens)
            except ValueError as error:
                raise Refusal(f"{self.page.path}: {error}.") from error
        # The page's own scalar is the loss of the whole step: there is one call in it.
        scalar = output[0] if isinstance(output, tuple) else output
        if not isinstance(scalar, Tensor) or scalar.dim():
            raise Refusal(
                f"{self.page.path} states LOSS = {self.page.loss!r}, and forward returns no scalar "
                f"to train on; state one of {', '.join(map(repr, LOSSES))}."
            )
        return scalar.float() / self.mesh.tp.size


@dataclass
class _Step:
    """A step's micro-batches as a pipeline runs them; ``step`` None: an evaluation's."""

    trainer: Trainer
    batches: Sequence[MicroBatch]
    tokens: int | Tensor
    step: int | None = None

    def begin_backward(self, stage: int, number: int) -> None:
        if self.trainer._recomputes:
            begin_micro_batch(self._model(stage), self._turn(number))

    def forward(self, stage: int, number: int, hidden: Tensor | None) -> Tensor:
        trainer, model, batch = self.trainer, self._model(stage), self.batches[number]
        if self.step is not None:
            trainer._begin(model, self._turn(number), stage)
        output = trainer._output(model, batch, hidden)
        if stage == trainer.pipeline.last:  # type: ignore[union-attr]
            return trainer._loss(output, batch, self.tokens)
        if not isinstance(output, Tensor):
            raise Refusal(
                f"Stage {stage} of {trainer.page.path} returns a {type(output).__name__}; a stage "
                "hands one tensor on to the next."
            )
        return output

    def shape(self, number: int) -> Sequence[int]:
        return self.batches[number].input_ids.shape

    def _model(self, stage: int) -> nn.Module:
        assert self.trainer.pipeline is not None
        return self.trainer.pipeline.models[stage]

    def _turn(self, number: int) -> Turn:
        assert self.step is not None
        first = self.batches[number].first_sequence
        return Turn(self.trainer.seed, self.step, first, number, len(self.batches))


def has_routers(model: nn.Module) -> bool:
    """Whether a module notes what it did in each micro-batch, as the routers of experts do."""
    return any(isinstance(module, StepRecord) for module in model.modules())


def takes_documents(model: nn.Module) -> bool:
    """Whether ``forward`` takes the ``positions`` that packed documents come with."""
    parameter = inspect.signature(model.forward).parameters.get("positions")
    if parameter is None:
        return False
    return parameter.annotation is parameter.empty or "Positions" in str(parameter.annotation)


def _needs_sharding(model: nn.Module, mesh: Mesh) -> bool:
    """Whether FSDP has a part in this run.

    On one rank in bf16 it only makes bf16 copies of float32 masters. Our layers cast their weights
    themselves, in a fused kernel where they are compiled, which saves FSDP's copies (20 ms of a
    477 ms step of 2.8 B parameters on an H200); a user's `nn.Linear` needs them.
    """
    if mesh.dp_cp.size > 1:
        return True
    foreign = any(record.law is None for record in parameter_table(model).values())
    return mesh.dtype != torch.float32 and foreign
