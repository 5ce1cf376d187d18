"""A page's checkpoint as a folder that transformers loads with `from_pretrained`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from specc.runtime import checkpoint
from specc.runtime.checkpoint_read import Stored
from specc.runtime.parameters import LocalPart
from specc.runtime.refusal import Refusal
from specc.runtime.safetensors import Entry

from .bar import Bar
from .folder import INDEX, ONE_FILE
from .import_weights import COPIED
from .page_model import PageModel, open_model
from .pieces import dtype_named, row_ranges, write_pieces
from .source import CONFIG

SHARD = 5 * 10**9  # bytes, what transformers writes by default


@dataclass
class _Shard:
    """A file: its tensors, and the pieces of our parameters that they are made of."""

    entries: dict[str, Entry] = field(default_factory=dict)
    pieces: list[tuple[str, range]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.entries.values())


def export_weights(
    page: Path,
    source: Path,
    out: Path,
    map: Path | None = None,
    *,
    dtype: str | None = None,
    shard_size: int = SHARD,
) -> Path:
    """Write the folder ``out``, which must not be there; where it is.

    ``dtype`` None is that of the model's own config. A file has at most ``shard_size`` bytes, if
    no tensor is larger. It is written aside and renamed when all of it is on the disk. Raises
    Refusal where the checkpoint is not the page's, or is damaged.
    """
    model = open_model(page, map)
    named = dtype or str(_stored_dtype(model.map.config) or "float32")
    kind = dtype_named(named)
    if kind is None:
        raise Refusal(f"{named} is no dtype to export: float32, bfloat16 and float16 are.")
    stored = _open(model, source)
    if out.exists():
        raise Refusal(f"{out} is there already: nothing is written over.")
    shards = _shards(model, kind, shard_size)
    aside = out.with_name(f"{out.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _write(model, stored, shards, aside)
        _write_texts(model, stored.checkpoint, named, aside)
        aside.rename(out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return out


def _open(model: PageModel, source: Path) -> Stored:
    folder = checkpoint.find(source)
    facts = checkpoint.read_facts(folder)
    if facts.page != model.page.body:
        raise Refusal(
            f"{folder} was written with a page with body {facts.page}, and that of "
            f"{model.page.path} is {model.page.body}."
        )
    now = json.loads(json.dumps(model.page.values(model.page.config())))
    for name, value in facts.config.items():
        if now.get(name) != value:
            raise Refusal(
                f"{folder} was trained with Config.{name} {value}, and {model.page.path} has "
                f"{now.get(name)}: the config that would be exported is the latter's."
            )
    stored = Stored(folder, "model")
    for name, shape in model.shapes.items():
        if name not in stored or stored.tensors[name].shape != shape:
            raise Refusal(f"{folder} has no {name} of shape {list(shape)}.")
        stored.check(name, LocalPart((0,) * len(shape), shape))
    return stored


def _shards(model: PageModel, dtype: torch.dtype, size: int) -> list[_Shard]:
    shards = [_Shard()]
    for name, place in model.places.items():
        shapes = place.expected(model.shapes[name], model.map.table.numbers)
        # Pieces that go into one tensor together stay together.
        every = len(place.pieces) if place.sliced else 1
        for first in range(0, len(place.pieces), every):
            found = {part.name: Entry(dtype, shapes[part.name]) for part in place.pieces[first]}
            more = sum(entry.nbytes for entry in found.values())
            if shards[-1].entries and shards[-1].nbytes + more > size:
                shards.append(_Shard())
            shards[-1].entries |= found
            shards[-1].pieces.append((name, range(first, first + every)))
    return shards


def _write(model: PageModel, stored: Stored, shards: list[_Shard], folder: Path) -> None:
    total = sum(shard.nbytes for shard in shards)
    bar, count, names = Bar("exporting", total), len(shards), dict[str, str]()
    try:
        for number, shard in enumerate(shards, 1):
            one = count == 1
            name = ONE_FILE if one else f"model-{number:05d}-of-{count:05d}.safetensors"
            names |= dict.fromkeys(shard.entries, name)
            with (folder / name).open("wb") as file:
                tensors = _tensors(model, stored, shard)
                write_pieces(file, shard.entries, tensors, {"format": "pt"}, bar)
                file.flush()
                os.fsync(file.fileno())
    finally:
        bar.end()
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(names.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _tensors(
    model: PageModel, stored: Stored, shard: _Shard
) -> Iterator[tuple[str, Iterable[Tensor]]]:
    for name, pieces in shard.pieces:
        place = model.places[name]
        if place.plain:
            yield place.pieces[0][0].name, _rows(model, stored, name)
            continue
        if place.sliced:
            rows = (_theirs(model, stored, name, number)[0][None] for number in pieces)
            yield place.pieces[0][0].name, rows
            continue
        for number in pieces:
            parts = _theirs(model, stored, name, number)
            for part, tensor in zip(place.pieces[number], parts, strict=True):
                yield part.name, (tensor,)


def _rows(model: PageModel, stored: Stored, name: str) -> Iterator[Tensor]:
    """One of our parameters in pieces of its rows."""
    shape = model.shapes[name]
    rest = shape[1:]
    for first, count in row_ranges(shape):
        yield stored.read(name, LocalPart((first, *[0] * len(rest)), (count, *rest)))


def _theirs(model: PageModel, stored: Stored, name: str, number: int) -> list[Tensor]:
    """A piece of one of our parameters, in Hugging Face's layout."""
    place, shape = model.places[name], model.shapes[name]
    if place.stacked:
        part = LocalPart((number, *[0] * (len(shape) - 1)), (1, *shape[1:]))
        ours = stored.read(name, part).squeeze(0)
    else:
        ours = stored[name]
    return place.layout.theirs(ours, model.map.table.numbers)


def _stored_dtype(config: dict[str, object]) -> object:
    return config.get("dtype") or config.get("torch_dtype")


def _write_texts(model: PageModel, source: Path, dtype: str, folder: Path) -> None:
    """The config, with the dtype that the weights have now, and what the checkpoint carries."""
    config = dict(model.map.config)
    config.pop("quantization_config", None)  # what is written here is not quantised
    config.pop("dtype", None)
    config["torch_dtype"] = dtype
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
