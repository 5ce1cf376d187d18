"""A training run from its options: what it reads, its loop, its reports and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import checkpoint
from .data import Stream, fingerprint, held_out_batches, split, training_batches
from .mesh import Mesh
from .options import Options
from .page import Page, load_page
from .parameters import canonical_parameters
from .progress import Clock, Progress, Report
from .refusal import Refusal
from .text import read_documents
from .tokenizer import Tokenizer, load_tokenizer
from .trainer import Trainer


@dataclass
class Result:
    """Losses by the number of steps taken: each step's own, and the held-out ones."""

    losses: dict[int, float] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    held_out: dict[int, float] = field(default_factory=dict)
    saved: Path | None = None


class Run:
    """Everything that a run needs, checked. Raises Refusal, in a sentence, for bad input."""

    def __init__(self, options: Options, mesh: Mesh, device: str = "cpu") -> None:
        self.options = options
        self.mesh = mesh
        self.page = load_page(options.page)
        self.config = self.page.config(options.changes)
        self.length = _length(options, self.page, self.config, mesh)
        self.layout = options.layout(mesh.dp.size, mesh.dp.rank)
        self.schedule = options.schedule()
        self.tokenizer = load_tokenizer(options.tokenizer)
        tokens = self.tokenizer.encode(read_documents(options.data, options.text_field))
        self.sequences, self.held_out = split(tokens, self.length, options.valid_fraction)
        self.text = f"{fingerprint(tokens)} of {len(tokens)} tokens"
        self.stream = Stream(len(self.sequences), options.seed)
        self.done, self.position = 0, 0
        resumed = self._resumed()
        if resumed:
            self.done, self.position = resumed[1].step, resumed[1].sequences
        largest = int(tokens.max())
        _check_vocabulary(
            largest, getattr(self.config, "vocab_size", None), self.tokenizer, self.page
        )
        self.trainer = Trainer(
            self.page,
            self.config,
            mesh,
            device=device,
            seed=options.seed,
            accumulation=self.layout.accumulation,
            betas=(options.beta1, options.beta2),
            weight_decay=options.weight_decay,
            clip=options.clip,
            compile_layers=options.compile,
        )
        model = self.trainer.model
        _check_vocabulary(largest, _embedded(model), self.tokenizer, self.page)
        if resumed:
            checkpoint.load_model(resumed[0], model, mesh)
            checkpoint.load_optimizer(
                resumed[0], model, self.trainer.optimizer, mesh, resumed[1].step
            )
        self.result = Result()
        self.progress = Progress(
            options.steps, speaks=mesh.rank == 0, tensorboard=options.tensorboard
        )
        self._window: list[tuple[Tensor, Tensor]] = []  # loss and norm of steps not looked at yet

    def train(self) -> Result:
        """Take the steps that are left. Raises Refusal where a loss is not finite."""
        options = self.options
        self.progress.note(self._introduction())
        if self.held_out and not self.done:
            self.progress.note(f"step 0/{options.steps}  held-out {self._evaluate():.4f}")
        clock = Clock()
        first = self.done + 1
        while self.done < options.steps:
            self.progress.tick(self.done + 1)
            self._step()
            evaluate = self.held_out is not None and self._due(options.eval_every)
            save = options.out is not None and self._due(options.save_every)
            if evaluate or save or self.done == first or self._due(options.log_every):
                self._report(clock, evaluate)
            if save:
                self._save()
            if evaluate or save:
                clock.restart()
        self.progress.close()
        return self.result

    def facts(self) -> checkpoint.Facts:
        """What a checkpoint written now says of the run."""
        mesh, schedule = self.mesh, self.schedule
        return checkpoint.Facts(
            page=self.page.body,
            config=self.page.values(self.config),
            seed=self.options.seed,
            seq_length=self.length,
            tokenizer=f"{self.tokenizer.kind} {self.tokenizer.hash}",
            text=self.text,
            step=self.done,
            sequences=self.position,
            schedule={
                "lr": schedule.lr,
                "min_lr": schedule.min_lr,
                "warmup": schedule.warmup,
                "steps": schedule.steps,
            },
            written_at={
                "tp": mesh.tp.size,
                "dp": mesh.dp.size,
                "sequence_parallel": mesh.sequence_parallel,
                "dtype": str(mesh.dtype).removeprefix("torch."),
                "torch": str(torch.__version__),
            },
        )

    def _step(self) -> None:
        batches = training_batches(self.sequences, self.stream, self.layout, self.position)
        self._window.append(self.trainer.step(self.done, self.schedule(self.done), batches))
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
            rate=self.schedule(self.done - 1),
            tokens_per_second=speed,
            seconds_left=left,
            held_out=self._evaluate() if evaluate else None,
        )
        self.progress.report(report)
        self.progress.scalars(self.done, norm=report.norm, lr=report.rate, tokens_per_second=speed)

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
                kept = f"; the last checkpoint is {self.result.saved}" if self.result.saved else ""
                raise Refusal(
                    f"Step {step} of {self.options.steps} has loss {loss} and gradient norm "
                    f"{norm}, so the run stops and writes no checkpoint{kept}."
                )
            self.result.losses[step], self.result.norms[step] = loss, norm
            self.progress.scalars(step, loss=loss)
        return list(losses)

    def _evaluate(self) -> float:
        assert self.held_out is not None
        count = self.options.eval_batches * self.layout.global_batch
        loss = self.trainer.evaluate(held_out_batches(self.held_out, self.layout, count))
        self.result.held_out[self.done] = loss
        self.progress.scalars(self.done, held_out_loss=loss)
        return loss

    def _save(self) -> None:
        assert self.options.out is not None
        trainer = self.trainer
        self.result.saved = checkpoint.save(
            self.options.out,
            trainer.model,
            trainer.optimizer,
            self.mesh,
            self.facts(),
            tokenizer=self.tokenizer.file,
            keep=self.options.keep,
        )
        self.progress.note(f"saved {self.result.saved}")

    def _resumed(self) -> tuple[Path, checkpoint.Facts] | None:
        """The checkpoint to go on from, checked against this run."""
        out, resume = self.options.out, self.options.resume
        newest = checkpoint.newest_step(out) if out else None
        if resume is None:
            if newest is not None:
                raise Refusal(
                    f"{out} holds a checkpoint of step {newest} and this run begins at step 0: add "
                    "--resume, or take another --out."
                )
            return None
        folder = checkpoint.find(resume)
        facts = checkpoint.read_facts(folder)
        checkpoint.refuse_another_run(facts, self.facts(), folder)
        if facts.step >= self.options.steps:
            raise Refusal(
                f"{folder} has taken {facts.step} steps, and --steps is {self.options.steps}."
            )
        if newest is not None and newest > facts.step:
            raise Refusal(
                f"{out} holds a checkpoint of step {newest}, which is beyond the step {facts.step} "
                f"of {folder}: remove it, or take another --out."
            )
        return folder, facts

    def _introduction(self) -> str:
        model, mesh, layout = self.trainer.model, self.mesh, self.layout
        count = sum(math.prod(record.shape) for _, record, _ in canonical_parameters(model))
        at = f"after step {self.done}" if self.done else "from the start"
        return (
            f"{self.page.path.name}: {count:,} parameters, tp {mesh.tp.size} x dp {mesh.dp.size}, "
            f"{layout.accumulation} x {layout.micro_batch} sequences of {self.length} on each, "
            f"{len(self.sequences):,} sequences of text, {at}"
        )


def _length(options: Options, page: Page, config: Any, mesh: Mesh) -> int:
    most = getattr(config, "max_position_embeddings", None)
    length = most if options.seq_length is None else options.seq_length
    if length is None:
        raise Refusal(
            f"The Config of {page.path} has no max_position_embeddings: give --seq-length."
        )
    if most is not None and length > most:
        raise Refusal(
            f"--seq-length {length} is longer than the {most} positions of {page.path} "
            "(max_position_embeddings)."
        )
    if mesh.sequence_parallel and length % mesh.tp.size:
        raise Refusal(
            f"--sequence-parallel: tp {mesh.tp.size} does not divide --seq-length {length}."
        )
    return int(length)


def _check_vocabulary(
    largest: int, vocabulary: int | None, tokenizer: Tokenizer, page: Page
) -> None:
    if vocabulary is not None and largest >= vocabulary:
        raise Refusal(
            f"The text has token {largest} (tokenizer {tokenizer.kind} has {tokenizer.size}), "
            f"and {page.path} has vocab_size {vocabulary}, so its last is {vocabulary - 1}."
        )


def _embedded(model: nn.Module) -> int | None:
    """How many tokens the model's first embedding knows: for a page whose Config does not say."""
    sizes = (getattr(module, "num_embeddings", None) for module in model.modules())
    return next((size for size in sizes if isinstance(size, int)), None)
