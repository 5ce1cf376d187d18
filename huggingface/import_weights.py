"""Weights of a Hugging Face folder as a checkpoint of a page, tensor by tensor."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from specc.runtime.checkpoint import Facts
from specc.runtime.checkpoint_folder import (
    FACTS,
    INDEX,
    partial,
    prepare,
    publish,
    target,
    write_file,
)
from specc.runtime.checkpoint_index import File, Index, Saved, Shard
from specc.runtime.parameters import LocalPart
from specc.runtime.refusal import Refusal
from specc.runtime.safetensors import Entry
from specc.runtime.tokenizer import load_tokenizer

from .bar import Bar
from .folder import Folder
from .page_model import PageModel, open_model
from .pieces import write_pieces
from .read import read_config
from .source import CONFIG, read_json
from .tensors import Part

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_FILE = "model.safetensors"


def import_weights(page: Path, source: Path, out: Path, map: Path | None = None) -> Path:
    """Write the checkpoint of step 0 in ``out``; where it is.

    Parameters are float32, as in every checkpoint. All that can be wrong is looked for before
    anything is written; one of our tensors is in memory at a time, of experts one expert.
    Raises Refusal where folder and page do not fit, or a file is damaged.
    """
    model = open_model(page, map)
    folder = Folder(source, _prefix(model))
    _check_config(model, source)
    _check_tensors(model, folder)
    tokenizer = source / "tokenizer.json"
    loaded = load_tokenizer(tokenizer if tokenizer.is_file() else None)
    texts = {name: (source / name).read_bytes() for name in COPIED if (source / name).is_file()}
    prepare(out, 0)
    try:
        index = _write(model, folder, partial(out, 0) / _FILE)
        facts = _facts(model, source, f"{loaded.kind} {loaded.hash}")
        publish(out, 0, texts | {FACTS: facts.json().encode(), INDEX: index.text().encode()})
    except BaseException:
        shutil.rmtree(partial(out, 0), ignore_errors=True)
        raise
    return target(out, 0)


def _prefix(model: PageModel) -> str:
    """What all names begin with but those of the head: "model.", "transformer."."""
    first = next(iter(model.places.values())).pieces[0][0].name
    return f"{first.partition('.')[0]}."


def _check_config(model: PageModel, source: Path) -> None:
    """Raises Refusal where the folder is of another model than the page: a base, a scaling."""
    if not (source / CONFIG).is_file():
        return
    here = read_config(read_json(source / CONFIG)).plan.config
    then = read_config(model.map.config).plan.config
    for name in {**then, **here}:
        if then.get(name) != here.get(name):
            raise Refusal(
                f"{source / CONFIG} says {name}={here.get(name)!r}, and the page was imported "
                f"with {then.get(name)!r}: import the config anew."
            )


def _check_tensors(model: PageModel, folder: Folder) -> None:
    """Raises Refusal where a tensor is missing, has another shape or dtype, or nobody wants it."""
    table, expected = model.map.table, set[str]()
    for name, place in model.places.items():
        for theirs, shape in place.expected(model.shapes[name], table.numbers).items():
            _check_one(folder, theirs, shape, name)
            expected.add(theirs)
    for theirs in folder:
        if theirs in expected or table.is_ignored(theirs):
            continue
        if theirs not in table.tied:
            raise Refusal(f"{folder.path} has {theirs}, for which {model.page.path} has no place.")
        if not torch.equal(folder.read(Part(theirs)), folder.read(Part(table.tied[theirs]))):
            raise Refusal(
                f"{folder.path} has {theirs} apart from {table.tied[theirs]}, and the config says "
                "that they are tied."
            )


def _check_one(folder: Folder, name: str, shape: tuple[int, ...], ours: str) -> None:
    if name not in folder:
        raise Refusal(f"{folder.path} lacks {name}, which {ours} is made of.")
    entry = folder.entry(name)
    if entry.shape != shape:
        raise Refusal(
            f"{folder.file_of(name)} has {name} as {list(entry.shape)}, and the page needs "
            f"{list(shape)}."
        )
    if entry.dtype not in FLOATS:
        raise Refusal(
            f"{folder.file_of(name)} has {name} in {entry.dtype}, which is quantised: take the "
            "model's weights in bfloat16, float16 or float32."
        )


def _write(model: PageModel, folder: Folder, path: Path) -> Index:
    numbers = model.map.table.numbers
    entries = {name: Entry(torch.float32, shape) for name, shape in model.shapes.items()}
    bar = Bar("importing", sum(entry.nbytes for entry in entries.values()))
    heads = []

    def tensors() -> Iterator[tuple[str, Iterator[Tensor]]]:
        for name, place in model.places.items():
            if place.plain:
                yield name, folder.rows(place.pieces[0][0].name)
            else:
                yield name, place.ours(folder.read, numbers)

    def write(file: BinaryIO) -> None:
        heads.append(write_pieces(file, entries, tensors(), {"format": "pt"}, bar))

    try:
        write_file(path, write)
    finally:
        bar.end()
    saved = {
        name: Saved(torch.float32, shape, (Shard(0, LocalPart((0,) * len(shape), shape)),))
        for name, shape in model.shapes.items()
    }
    file = File(path.name, path.stat().st_size, zlib.crc32(heads[0]))
    return Index({"model": {0: file}, "optimizer": {}}, {"model": saved, "optimizer": {}})


def _facts(model: PageModel, source: Path, tokenizer: str) -> Facts:
    values = model.page.values(model.page.config())
    length = values.get("max_position_embeddings")
    if not isinstance(length, int):
        raise Refusal(f"{model.page.path} has no max_position_embeddings in its Config.")
    return Facts(
        page=model.page.body,
        config=values,
        seed=0,
        seq_length=length,
        tokenizer=tokenizer,
        text="imported",
        step=0,
        sequences=0,
        schedule={},
        written_at={
            "imported": source.resolve().name,
            "torch": str(torch.__version__),
        },
    )
