"""What a run checks first: sequences that the mesh can cut, tokens that the model knows, a folder
for its checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import nn

from .data_open import Data
from .mesh import Mesh
from .options import Options
from .page import Page
from .refusal import Refusal


def sequence_length(options: Options, page: Page, config: Any, mesh: Mesh) -> int:
    """The positions of a sequence. Raises Refusal where the page or the mesh does not take them."""
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
    pieces = 2 * mesh.cp.size if mesh.cp.size > 1 else 1
    if length % pieces:
        raise Refusal(
            f"--cp {mesh.cp.size} deals each sequence out in {pieces} equal pieces, which do not "
            f"make up --seq-length {length}."
        )
    if mesh.sequence_parallel and length // mesh.cp.size % mesh.tp.size:
        part = "" if mesh.cp.size == 1 else f" / --cp {mesh.cp.size} = {length // mesh.cp.size}"
        raise Refusal(
            f"--sequence-parallel: tp {mesh.tp.size} does not divide --seq-length {length}{part}."
        )
    return int(length)


def check_vocabulary(data: Data, vocabulary: int | None, page: Page) -> None:
    """Raises Refusal where the data has a token that the model does not know.

    Of large token files only samples have been seen yet: the others are checked when they are read.
    """
    if vocabulary is None:
        return
    if data.largest < vocabulary:
        data.refuse_from(vocabulary)
        return
    tokenizer = data.tokenizer
    known = f" (tokenizer {tokenizer.kind} has {tokenizer.size})" if tokenizer else ""
    raise Refusal(
        f"The data has token {data.largest}{known}, and {page.path} has vocab_size "
        f"{vocabulary}, so its last is {vocabulary - 1}."
    )


def check_folder(out: Path) -> None:
    """Makes the folder for checkpoints. Raises Refusal where none can be written to it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"--out {out} cannot be made a folder: {error}.") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise Refusal(f"--out {out} is a folder that this user may not write to.")


def embedded(model: nn.Module) -> int | None:
    """How many tokens the model's first embedding knows: for a page whose Config does not say."""
    sizes = (getattr(module, "num_embeddings", None) for module in model.modules())
    return next((size for size in sizes if isinstance(size, int)), None)
