"""A page's training step, as the trainer takes it: what the timings time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from timing import LEARNING_RATE, Shape
from torch import Tensor

from specc.runtime import Mesh
from specc.runtime.data import MicroBatch
from specc.runtime.launch import process_group
from specc.runtime.page import load_page
from specc.runtime.trainer import Trainer, Training

DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}


def build(page: Path, shape: Shape, device: str) -> Callable[[int, Tensor], Tensor]:
    """A training step of a Llama's page in this shape, on token ids [b, s + 1]: its loss."""
    changes = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_query_groups": shape.groups,
        "ffn_hidden_size": shape.ffn,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.length,
    }
    stack = ExitStack()  # left open: the process ends with the timing
    trainer, _ = trainer_of(page, changes, stack, Training(compile=True), device=device)
    return lambda number, ids: take(trainer, number, ids)


def trainer_of(
    page: Path,
    changes: dict[str, Any],
    stack: ExitStack,
    how: Training,
    *,
    device: str,
    dtype: str = "bf16",
    **of_the_mesh: Any,
) -> tuple[Trainer, Any]:
    """A page's trainer in one process, whose group ends with ``stack``, and the page's config."""
    loaded = load_page(page)
    stack.enter_context(process_group(device))
    mesh = Mesh.launch(device=device, dtype=DTYPES[dtype], compiled=how.compile, **of_the_mesh)
    config = loaded.config(changes)
    return Trainer(loaded, config, mesh, how, device=device), config


def add_page(parser: argparse.ArgumentParser) -> None:
    """The options that say which page, in which numbers, on what data."""
    parser.add_argument("page", type=Path)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=NUMBER")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--device", default="cuda")


def changes_of(settings: list[str]) -> dict[str, Any]:
    """FIELD=NUMBER as the page's Config takes them."""
    pairs = (setting.split("=") for setting in settings)
    return {name: float(value) if "." in value else int(value) for name, value in pairs}


def take(
    trainer: Trainer,
    number: int,
    ids: Tensor,
    rate: float = LEARNING_RATE,
    starts: Tensor | None = None,
) -> Tensor:
    """One step on token ids [b, s + 1]; its loss. ``starts`` [b, s] as ``Positions`` has it."""
    documents = {} if starts is None else {"starts": starts}
    batch = MicroBatch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), 0, **documents)
    return trainer.step(number, rate, [batch])[0]


def versions() -> str:
    return f"torch {torch.__version__}"
