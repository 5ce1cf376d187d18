"""A training run from its options: what it reads, its loop, its reports and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from . import announce, checkpoint
from .data import MicroBatch
from .data_open import open_data
from .initial_weights import initial_weights
from .launch import Job, patience
from .mesh import Mesh
from .options import Options
from .page import load_page
from .prefetch import Prefetch
from .progress import Clock, Progress, Report
from .refusal import Refusal
from .resume import resumed
from .run_checks import check_folder, check_vocabulary, embedded, sequence_length
from .trainer import Trainer, Training, takes_documents


@dataclass
class Result:
    """Losses by the number of steps taken: each step's own, and the held-out ones."""

    losses: dict[int, float] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    held_out: dict[int, float] = field(default_factory=dict)
    saved: Path | None = None


class Run:
    """Everything that a run needs, checked. Raises Refusal, in a sentence, for bad input.

    ``mark`` is told where the run is, as it gets on; ``job``: what torchrun runs.
    """

    def __init__(
        self,
        options: Options,
        mesh: Mesh,
        device: str = "cpu",
        *,
        job: Job | None = None,
        mark: Callable[[str], None] = lambda where: None,
    ) -> None:
        self.options = options
        self.mesh = mesh
        self.job = job
        self._mark = mark
        self.page = load_page(options.page)
        self.config = self.page.config(options.changes)
        self.length = sequence_length(options, self.page, self.config, mesh)
        self.layout = options.layout(mesh.dp.size, mesh.dp.rank)
        self.rates = options.rates()
        self.data = open_data(
            options.data,
            length=self.length,
            seed=options.seed,
            tokenizer=options.tokenizer,
            text_field=options.text_field,
            valid_fraction=options.valid_fraction,
            packed=options.packed_documents,
            eod=options.eod,
            eod_mask_loss=options.eod_mask_loss,
        )
        self.done, self.position = 0, 0
        found = resumed(options, self.facts(), job)
        begin = None
        if found:
            self.done, self.position = found[1].step, found[1].sequences
        elif options.init is not None:
            begin = initial_weights(options.init, self.facts())
        vocabulary = getattr(self.config, "vocab_size", None)
        check_vocabulary(self.data, vocabulary, self.page)
        self.trainer = Trainer(
            self.page,
            self.config,
            mesh,
            Training(
                betas=(options.beta1, options.beta2),
                weight_decay=options.weight_decay,
                clip=options.clip,
                accumulation=self.layout.accumulation,
                compile=options.compile,
                zero=options.zero,
                recompute=options.recomputed(),
                schedule=options.schedule,
                stages_per_rank=options.stages_per_rank,
                layers_per_stage=options.layers_per_stage,
            ),
            device=device,
            seed=options.seed,
            mark=mark,
        )
        model = self.trainer.model
        if vocabulary is None:
            check_vocabulary(self.data, embedded(model), self.page)
        if options.packed_documents and not takes_documents(model):
            raise Refusal(
                f"--packed-documents: forward of {type(model).__name__} in {options.page} takes no "
                "positions: Positions, which say where documents begin."
            )
        self.result = Result()
        self.saver = self._saver(options.out) if options.out else None
        if found:
            folder, facts = found
            checkpoint.load_model(folder, model, mesh)
            checkpoint.load_optimizer(folder, model, self.trainer.optimizer, mesh, facts.step)
            self.result.saved = folder
        elif begin is not None:
            checkpoint.load_model(begin, model, mesh)
        self.progress = Progress(
            options.steps, speaks=mesh.rank == 0, tensorboard=options.tensorboard
        )
        self._window: list[tuple[Tensor, Tensor]] = []  # loss and norm of steps not looked at yet

    def train(self) -> Result:
        """Take the steps that are left. Raises Refusal where a loss is not finite."""
        options = self.options
        for line in announce.lines(self):
            self.progress.note(line)
        if self.data.held_out_count and not self.done:
            self.progress.note(f"step 0/{options.steps}  held-out {self._evaluate():.4f}")
        steps, pin = options.steps - self.done, self.trainer.device.type == "cuda"
        with Prefetch(
            self.data, self.layout, position=self.position, steps=steps, pin=pin
        ) as batches:
            self._steps(batches)
        self._finish_saving()
        self.progress.close()
        return self.result

    def _steps(self, batches: Iterator[Sequence[MicroBatch]]) -> None:
        options = self.options
        clock = Clock()
        first = self.done + 1
        while self.done < options.steps:
            self.progress.tick(self.done + 1)
            self._step(next(batches))
            evaluate = self.data.held_out_count > 0 and self._due(options.eval_every)
            save = self.saver is not None and self._due(options.save_every)
            if evaluate or save or self.done == first or self._due(options.log_every):
                self._report(clock, evaluate)
            if self.done == first and (used := announce.memory(self.trainer)):
                self.progress.note(used)
            if save:  # of steps that _report has looked at, all of them
                self._save()
            if evaluate or save:
                clock.restart()

    def facts(self) -> checkpoint.Facts:
        """What a checkpoint written now says of the run."""
        mesh, rates = self.mesh, self.rates
        written_at = {
            "tp": mesh.tp.size,
            "sequence_parallel": mesh.sequence_parallel,
            "cp": mesh.cp.size,
            "cp_comm_type": mesh.cp_comm_type,
            "dp": mesh.dp.size,
            "dp_replicate": mesh.dp_replicate.size,
            "pp": mesh.pp.size,
            "schedule": self.options.schedule,
            "ep": mesh.ep.size,
            "etp": mesh.etp.size,
            "zero": self.options.zero,
            "dtype": str(mesh.dtype).removeprefix("torch."),
            "torch": str(torch.__version__),
        }
        return checkpoint.Facts(
            page=self.page.body,
            config=self.page.values(self.config),
            seed=self.options.seed,
            seq_length=self.length,
            tokenizer=self.data.tokenizer_name or "unknown",
            text=self.data.identity,
            step=self.done,
            sequences=self.position,
            schedule={
                "lr": rates.lr,
                "min_lr": rates.min_lr,
                "warmup": rates.warmup,
                "steps": rates.steps,
            },
            written_at=written_at | ({"job": self.job.name} if self.job else {}),
        )

    def _step(self, batches: Sequence[MicroBatch]) -> None:
        self._window.append(self.trainer.step(self.done, self.rates(self.done), batches))
        self.position += self.layout.global_batch
        self.done += 1

    def _due(self, every: int) -> bool:
        return self.done == self.options.steps or (every > 0 and self.done % every == 0)

    def _report(self, clock: Clock, evaluate: bool) -> None:
        losses = self._look()
        tokens = len(losses) * self.layout.global_batch * self.length
        speed, left = clock.read(len(losses), tokens, self.options.steps - self.done)
        report = Report(
            step=self.done,
            loss=sum(losses) / len(losses),
            norm=self.result.norms[self.done],
            rate=self.rates(self.done - 1),
            tokens_per_second=speed,
            seconds_left=left,
            held_out=self._evaluate() if evaluate else None,
        )
        self.progress.report(report)
        self.progress.scalars(self.done, norm=report.norm, lr=report.rate, tokens_per_second=speed)
        routers = {name: float(loss) for name, loss in self.trainer.attached_losses.items()}
        self.progress.scalars(self.done, **routers)

    def _look(self) -> list[float]:
        """Bring the losses of the steps since the last look here: the one place that waits."""
        local, norms = zip(*self._window, strict=True)
        losses = self.trainer.summed(torch.stack(local)).tolist()
        first = self.done - len(losses) + 1
        self._window.clear()
        for step, (loss, norm) in enumerate(
            zip(losses, torch.stack(norms).tolist(), strict=True), first
        ):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                self._finish_saving()  # what is being written is of steps that were looked at
                kept = f"; the last checkpoint is {self.result.saved}" if self.result.saved else ""
                raise Refusal(
                    f"Step {step} of {self.options.steps} has loss {loss} and gradient norm "
                    f"{norm}, so the run stops and writes no checkpoint{kept}."
                )
            self.result.losses[step], self.result.norms[step] = loss, norm
            self.progress.scalars(step, loss=loss)
        return list(losses)

    def _evaluate(self) -> float:
        count = self.options.eval_batches * self.layout.global_batch
        loss = self.trainer.evaluate(self.data.held_out_batches(self.layout, count))
        self.result.held_out[self.done] = loss
        self.progress.scalars(self.done, held_out_loss=loss)
        return loss

    def _saver(self, folder: Path) -> checkpoint.Saver:
        check_folder(folder)  # now, not when there are steps to lose
        return checkpoint.Saver(
            folder,
            self.mesh,
            keep=self.options.keep,
            asynchronous=self.options.async_save,
            timeout=timedelta(seconds=patience(self.options.timeout)),
        )

    def _save(self) -> None:
        assert self.saver is not None and not self._window
        self._mark(f"the checkpoint of step {self.done}")
        tokenizer, trainer = self.data.tokenizer, self.trainer
        folder = self.saver.save(
            trainer.model,
            trainer.optimizer,
            self.facts(),
            tokenizer=tokenizer.file if tokenizer else None,
        )
        self.progress.note(f"{'saving' if self.options.async_save else 'saved'} {folder}")
        self.result.saved = self.saver.saved or self.result.saved

    def _finish_saving(self) -> None:
        if self.saver is None:
            return
        self._mark("the last checkpoint")
        self.saver.finish()
        if self.saver.saved and self.options.async_save:
            self.progress.note(f"saved {self.saver.saved}")
        self.result.saved = self.saver.saved or self.result.saved
