"""The options of a training run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .data import Layout
from .optimizer import Schedule
from .page import Number
from .refusal import Refusal


@dataclass(frozen=True)
class Options:
    """What was asked for; a field that is None is chosen when the run knows more."""

    page: Path
    data: Path
    text_field: str = "text"
    tokenizer: Path | None = None
    valid_fraction: float = 0.05
    changes: dict[str, Number] = field(default_factory=dict)
    seq_length: int | None = None
    steps: int = 200
    micro_batch: int = 8
    global_batch: int | None = None
    lr: float = 1e-3
    min_lr: float | None = None
    warmup: int | None = None
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    nproc: int = 1
    tp: int = 1
    dp: int | None = None
    sequence_parallel: bool = False
    device: str | None = None
    dtype: str | None = None
    compile: bool = False
    deterministic: bool = False
    seed: int = 0
    log_every: int = 10
    eval_every: int = 100
    eval_batches: int = 8
    out: Path | None = None
    save_every: int = 0
    keep: int = 2
    resume: Path | None = None
    tensorboard: Path | None = None

    def layout(self, dp: int, dp_rank: int) -> Layout:
        """How each step's sequences are dealt out. Raises Refusal where they do not divide."""
        together = self.micro_batch * dp
        total = together if self.global_batch is None else self.global_batch
        if total < 1 or total % together:
            raise Refusal(
                f"--global-batch {total} is no multiple of {together} sequences "
                f"(--micro-batch {self.micro_batch} on {dp} data-parallel ranks)."
            )
        return Layout(self.micro_batch, total // together, dp, dp_rank)

    def schedule(self) -> Schedule:
        return Schedule(
            self.lr,
            self.lr / 10 if self.min_lr is None else self.min_lr,
            min(100, self.steps // 10) if self.warmup is None else self.warmup,
            self.steps,
        )


def parse(arguments: Sequence[str]) -> Options:
    """Options from a command line. argparse itself ends the program for ``--help`` and mistakes."""
    values = vars(parser().parse_args(arguments))
    changes = dict(_change(text) for text in values.pop("set", ()))
    if "resume" in values and values["resume"] is None:
        if "out" not in values:
            raise Refusal("--resume alone goes on from the run in --out, and 0 folders are given.")
        values["resume"] = values["out"]
    options = Options(changes=changes, **values)
    _check(options)
    return options


def _check(options: Options) -> None:
    least = {
        "steps": 1, "micro_batch": 1, "nproc": 1, "tp": 1, "dp": 1, "seq_length": 1, "log_every": 1,
        "keep": 1, "eval_batches": 1, "warmup": 0, "eval_every": 0, "save_every": 0, "lr": 0,
        "min_lr": 0, "weight_decay": 0, "clip": 0, "valid_fraction": 0,
    }  # fmt: skip
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and value < bound:
            raise Refusal(f"--{name.replace('_', '-')} {value} is below {bound}.")
    for name in ("valid_fraction", "beta1", "beta2"):
        value = getattr(options, name)
        if not 0 <= value < 1:
            raise Refusal(f"--{name.replace('_', '-')} {value} is not in [0, 1).")
    if options.save_every and options.out is None:
        raise Refusal(f"--save-every {options.save_every} has 0 folders to save to: give --out.")


def _change(text: str) -> tuple[str, Number]:
    name, equals, value = text.partition("=")
    for kind in (int, float):
        try:
            return name.strip(), kind(value)
        except ValueError:
            continue
    what = f"{value!r} is no number" if equals else "there is no '='"
    raise Refusal(f"--set {text}: {what}; it takes field=number.")


def parser(prog: str = "specc train") -> argparse.ArgumentParser:
    """The command line; what an option that is not given means stands in its help."""
    top = argparse.ArgumentParser(
        prog=prog,
        description="Train a page on text (`torchrun ... -m specc.runtime.train` does the same).",
        argument_default=argparse.SUPPRESS,  # Options holds the defaults
        allow_abbrev=False,
    )
    top.add_argument("page", type=Path, metavar="PAGE", help="a file that `specc compile` wrote")
    for title, options in _GROUPS.items():
        group = top.add_argument_group(title)
        for name, (kind, text) in options.items():
            default = getattr(Options, name.replace("-", "_"), None)
            settings: dict[str, Any] = {"help": f"{text} ({default})" if default else text}
            if kind is bool:
                settings["action"] = "store_true"
            else:
                settings |= {"type": kind, "metavar": _METAVAR[kind]}
            group.add_argument(f"--{name}", **(settings | _SPECIAL.get(name, {})))
    return top


_SPECIAL: dict[str, dict[str, Any]] = {
    "data": {"required": True},
    "set": {"action": "append", "metavar": "FIELD=NUMBER"},
    "resume": {"nargs": "?", "const": None},  # None where the bare flag is given
}

_METAVAR: dict[Callable[[str], object], str] = {int: "N", float: "X", str: "NAME", Path: "PATH"}

_GROUPS: dict[str, dict[str, tuple[Callable[[str], object], str]]] = {
    "text": {
        "data": (Path, "a text file, JSON lines (.jsonl), or a folder of them"),
        "text-field": (str, "the field of a JSON line that holds the text"),
        "tokenizer": (Path, "a Hugging Face tokenizers file; bytes are the tokens without one"),
        "valid-fraction": (float, "the tail of the text that is held out, one sequence at least"),
    },
    "model": {
        "set": (str, "another number in the page's Config; may be given again"),
        "seq-length": (int, "positions of a sequence; Config.max_position_embeddings if not given"),
        "seed": (int, "of initial values, order of the text, and dropout"),
    },
    "steps": {
        "steps": (int, "how many"),
        "micro-batch": (int, "sequences of one forward pass"),
        "global-batch": (
            int,
            "sequences of a step, to which gradients accumulate; --micro-batch x --dp if not given",
        ),
        "lr": (float, "the highest learning rate"),
        "min-lr": (float, "the last one; a tenth of --lr if not given"),
        "warmup": (int, "steps to reach --lr; a tenth of --steps, at most 100, if not given"),
        "weight-decay": (float, "of matrices; vectors do not decay"),
        "beta1": (float, "of AdamW"),
        "beta2": (float, "of AdamW"),
        "clip": (float, "the highest norm of all gradients; 0 does not clip"),
    },
    "layout": {
        "nproc": (int, "processes to start here; under torchrun it has started them"),
        "tp": (int, "processes that share each layer"),
        "dp": (int, "processes that share the batch; the processes over --tp if not given"),
        "sequence-parallel": (bool, "share the positions between the layers too, over --tp"),
        "device": (str, "cpu or cuda; cuda where there is one if not given"),
        "dtype": (
            str,
            "what layers compute in, bf16 or float32; bf16 on cuda, float32 on cpu if not given",
        ),
        "compile": (bool, "compile each layer with torch.compile"),
        "deterministic": (bool, "use deterministic kernels only"),
    },
    "reports and checkpoints": {
        "log-every": (int, "steps between lines"),
        "eval-every": (int, "steps between held-out losses; 0 for the last step only"),
        "eval-batches": (int, "batches of --global-batch that a held-out loss reads"),
        "tensorboard": (Path, "a folder for TensorBoard"),
        "out": (Path, "a folder for checkpoints; the last step always writes one"),
        "save-every": (int, "steps between checkpoints"),
        "keep": (int, "how many checkpoints stay"),
        "resume": (Path, "go on from a checkpoint; the bare flag means the last one in --out"),
    },
}
