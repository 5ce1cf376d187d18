"""A damaged or foreign checkpoint is refused in a sentence, and no pickle in it is run."""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_model import build, facts, launch, read, set_values, write

from specc.runtime import Mesh
from specc.runtime.checkpoint import (
    Saver,
    find,
    load_model,
    newest_step,
    read_facts,
    refuse_another_run,
)
from specc.runtime.refusal import Refusal

Ranks = Callable[..., list[Any]]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A whole checkpoint of one process."""
    mesh = Mesh.single()
    model, optimizer = build(mesh)
    set_values(model, optimizer, mesh, seed=1)
    return Saver(tmp_path, mesh).save(model, optimizer, facts(1))


def load(checkpoint: Path) -> list[str]:
    """What ``--resume`` does: the facts, then model and optimizer."""
    read_facts(checkpoint)
    return read(checkpoint, None, 1)


def refused(checkpoint: Path) -> str:
    with pytest.raises(Refusal) as error:
        load(checkpoint)
    said = str(error.value)
    assert said.endswith(".") and "\n" not in said
    return said


def rewrite_index(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the index as one who forges a checkpoint would: the marker's hash fits again."""
    path = checkpoint / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    marker = json.loads((checkpoint / "complete.json").read_text())
    marker["sha256"]["index.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (checkpoint / "complete.json").write_text(json.dumps(marker))


def test_untouched_it_loads(checkpoint: Path) -> None:
    assert load(checkpoint) == []
    rewrite_index(checkpoint, lambda index: None)
    assert load(checkpoint) == []


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("left", [0, 7, 300, -1])
def test_a_file_cut_short(checkpoint: Path, name: str, left: int) -> None:
    path = checkpoint / name
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    said = refused(checkpoint)
    assert name in said and "cut short" in said
    assert str(len(whole)) in said and str(len(whole[:left])) in said


def test_any_flipped_bit_of_a_header(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    for place in range(0, length, 7):
        for bit in (0, 4):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(Refusal, match=r"model\.safetensors"):
                load_model(checkpoint, build_once(), Mesh.single())


def build_once(models: list[torch.nn.Module] = []) -> torch.nn.Module:  # noqa: B006
    if not models:
        models.append(build(Mesh.single())[0])
    return models[0]


@pytest.mark.parametrize("name", ["checkpoint.json", "index.json", "complete.json"])
def test_any_flipped_bit_of_the_json(checkpoint: Path, name: str) -> None:
    path = checkpoint / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 16
        path.write_bytes(damaged)
        with pytest.raises(Refusal):
            read_facts(checkpoint)
            load_model(checkpoint, build_once(), Mesh.single())


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint.json",
        "index.json",
        "complete.json",
        "model.safetensors",
        "optimizer.safetensors",
    ],
)
def test_a_missing_file(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    said = refused(checkpoint)
    assert name in said and "no whole checkpoint" in said


def test_without_its_marker_it_is_not_found(checkpoint: Path) -> None:
    (checkpoint / "complete.json").unlink()
    assert newest_step(checkpoint.parent) is None
    with pytest.raises(Refusal, match="There is no checkpoint in"):
        find(checkpoint.parent)
    assert "no whole checkpoint" in refused(find(checkpoint))


def test_another_format(checkpoint: Path) -> None:
    marker = checkpoint / "complete.json"
    marker.write_text(marker.read_text().replace("specc checkpoint 2", "specc checkpoint 7"))
    said = refused(checkpoint)
    assert "'specc checkpoint 7'" in said and "'specc checkpoint 2'" in said


def test_the_format_before_this_one(tmp_path: Path) -> None:
    old = tmp_path / "step-00000200"
    old.mkdir()
    (old / "checkpoint.json").write_text('{"format": "specc checkpoint 1"}')
    for read_it in (lambda: find(tmp_path), lambda: read_facts(old), lambda: newest_step(tmp_path)):
        with pytest.raises(Refusal) as error:
            read_it()
        assert "'specc checkpoint 1'" in str(error.value)
        assert "'specc checkpoint 2'" in str(error.value)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_stock_dcp(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import FileSystemWriter, save

    save({"x": torch.ones(2)}, storage_writer=FileSystemWriter(tmp_path / "step-10"), no_dist=True)
    for read_it in (
        lambda: find(tmp_path),
        lambda: newest_step(tmp_path),
        lambda: read_facts(tmp_path / "step-10"),
        lambda: read_facts(find(tmp_path / "step-10")),
    ):
        with pytest.raises(Refusal, match=r"torch.distributed.checkpoint, whose .metadata"):
            read_it()
    # Nor is it taken for a rest of ours, to be cleared away.
    mesh = Mesh.single()
    Saver(tmp_path, mesh, keep=1).save(*build(mesh), facts(1))
    assert (tmp_path / "step-10" / ".metadata").is_file()


class Planted:
    """A pickle that makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


def test_a_planted_pickle_is_not_run(checkpoint: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    planted = pickle.dumps(Planted(ran))
    for name in (".metadata", "__0_0.distcp", "model.pt", "state.pkl"):
        (checkpoint / name).write_bytes(planted)
    assert load(checkpoint) == []
    kept = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    for name in (
        "model.safetensors",
        "optimizer.safetensors",
        "index.json",
        "checkpoint.json",
        "complete.json",
    ):
        (checkpoint / name).write_bytes(planted)
        assert name in refused(checkpoint)
        torch.save(Planted(ran), checkpoint / name)
        assert name in refused(checkpoint)
        (checkpoint / name).write_bytes(kept[name])
    # As long as the file that the index names, too.
    size = (checkpoint / "model.safetensors").stat().st_size
    (checkpoint / "model.safetensors").write_bytes(planted.ljust(size, b"\0"))
    assert "model.safetensors" in refused(checkpoint)
    assert not ran.exists()
    pickle.loads(planted)
    assert ran.exists()  # it would have


def test_a_path_that_leaves_the_folder(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copy(checkpoint / "model.safetensors", tmp_path / "model.safetensors")
    for name in ("../model.safetensors", str(tmp_path / "model.safetensors"), "model.pt"):
        rewrite_index(checkpoint, partial(name_file, name))
        said = refused(checkpoint)
        assert name in said and "no name of a checkpoint's file" in said


def name_file(name: str, index: dict[str, Any]) -> None:
    index["files"]["model"]["0"][0] = name


def shards_of(index: dict[str, Any], name: str) -> Any:
    """A list of shards for this tensor alone."""
    index["shards"].append(json.loads(json.dumps(index["shards"][index["model"][name]["shards"]])))
    index["model"][name]["shards"] = len(index["shards"]) - 1
    return index["shards"][-1]


NAME = "layers.0.fc1.weight"  # [12, 8]


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ([], ["hold 0 of its 96 entries"]),
        ([[0, [0, 0], [11, 8]]], ["hold 88 of its 96 entries"]),
        ([[0, [0, 0], [12, 8]], [0, [4, 2], [1, 1]]], ["[4, 2]", "overlap"]),
        ([[0, [0, 0], [6, 8]], [0, [5, 0], [6, 8]]], ["[5, 0]", "overlap"]),
        ([[0, [1, 0], [12, 8]]], ["offset [1, 0]", "[12, 8]"]),
        ([[0, [0, 0, 0], [12, 8, 1]]], ["[12, 8, 1]", "[12, 8]"]),
        ([[3, [0, 0], [12, 8]]], ["rank 3", "no file"]),
        ([[0, [-1, 0], [13, 8]]], ["no index"]),
        ([[0, [0.0, 0], [12, 8]]], ["no index"]),
        ([[0, [0, 0]]], ["no index"]),
        ("all of it", ["no index"]),
    ],
)
def test_shards_that_make_up_no_tensor(checkpoint: Path, shards: Any, words: list[str]) -> None:
    def change(index: dict[str, Any]) -> None:
        shards_of(index, NAME)
        index["shards"][-1] = shards

    rewrite_index(checkpoint, change)
    said = refused(checkpoint)
    assert "index.json" in said and all(word in said for word in words), said


def test_an_index_that_does_not_fit_its_files(checkpoint: Path) -> None:
    """Another shape, cut as the forger likes, of which the file knows nothing."""

    def change(index: dict[str, Any]) -> None:
        shards_of(index, NAME)[:] = [[0, [0, 0], [6, 8]], [0, [6, 0], [6, 8]]]

    rewrite_index(checkpoint, change)
    said = refused(checkpoint)
    assert NAME in said and "[6, 8]" in said and "which index.json says it has" in said


def test_tensors_that_the_model_does_not_have(checkpoint: Path) -> None:
    model = build(Mesh.single())[0]
    model.extra = torch.nn.Parameter(torch.zeros(2))
    del model.scale
    model.__dict__.pop("_parameter_table")
    with pytest.raises(Refusal) as error:
        load_model(checkpoint, model, Mesh.single())
    said = str(error.value)
    assert "1 are missing (extra)" in said and "1 are not known (scale)" in said


def test_shapes_and_types_that_do_not_fit(checkpoint: Path) -> None:
    mesh = Mesh.single()
    with pytest.raises(Refusal) as error:
        load_model(checkpoint, build(mesh, vocabulary=11)[0], mesh)
    said = str(error.value)
    assert "embedding.weight" in said and "[13, 8]" in said and "[11, 8]" in said
    with pytest.raises(Refusal) as error:
        load_model(checkpoint, build(mesh)[0].double(), mesh)
    assert "torch.float32" in str(error.value) and "torch.float64" in str(error.value)


def test_nothing_was_changed_where_it_was_refused(checkpoint: Path) -> None:
    mesh = Mesh.single()
    model, _ = build(mesh)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (checkpoint / "model.safetensors").write_bytes(b"")
    with pytest.raises(Refusal):
        load_model(checkpoint, model, mesh)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def sentences(checkpoint: Path, other: Path | None = None) -> str:
    mesh = launch({"tp": 2})
    try:
        load_model(other if other and mesh.rank else checkpoint, build(mesh)[0], mesh)
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_what_one_rank_finds_all_ranks_refuse(ranks: Ranks, tmp_path: Path) -> None:
    ranks(4, write, tmp_path, {"tp": 2})
    checkpoint = tmp_path / "step-00000001"
    path = checkpoint / "model-00003-of-00004.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    said = ranks(4, sentences, checkpoint)
    assert len(set(said)) == 1 and path.name in said[0] and "cut short" in said[0]


def test_ranks_that_see_different_checkpoints_do_not_start(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, write, tmp_path, {}, 2)
    first, second = tmp_path / "step-00000001", tmp_path / "step-00000002"
    assert ranks(2, sentences, first) == ["", ""]
    said = ranks(2, sentences, first, second)
    assert all("Rank 1 found another checkpoint" in sentence for sentence in said)


def test_another_run(checkpoint: Path) -> None:
    saved = read_facts(checkpoint)
    refuse_another_run(saved, facts(5), checkpoint)
    for field, value in (("seed", 4), ("text", "another"), ("page", "3f9c2a71")):
        with pytest.raises(Refusal, match=f"{getattr(saved, field)}.*{value}"):
            refuse_another_run(saved, replace(saved, **{field: value}), checkpoint)
