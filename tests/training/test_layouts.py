"""The same run in several processes: losses, norms, checkpoints, at every layout."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specc.runtime import Mesh, checkpoint
from specc.runtime.data import IGNORED, MicroBatch
from specc.runtime.options import parse
from specc.runtime.run import Result, Run
from specc.runtime.train import DTYPES, launch_mesh

Ranks = Callable[..., list[Any]]


def start(arguments: list[str], dtype: str = "float32") -> Run:
    options = parse(arguments)
    return Run(options, launch_mesh(options, "cpu", DTYPES[dtype]))


def train(arguments: list[str], dtype: str = "float32") -> Result:
    return start(arguments, dtype).train()


def words(*arguments: Any) -> list[str]:
    return [str(argument) for argument in arguments]


def unevenly_ignored(batch: MicroBatch) -> MicroBatch:
    """Ignores more labels the later a sequence stands in its step: up to all but one."""
    labels = batch.labels.clone()
    for row in range(len(labels)):
        index = batch.first_sequence + row
        labels[row, : (5 * index) % labels.shape[1]] = IGNORED
    return replace(batch, labels=labels)


def uneven_steps(run: Run, steps: int = 3) -> list[tuple[float, float]]:
    """Each step's loss and norm when labels are ignored unevenly."""
    results = []
    for step in range(steps):
        position = step * run.layout.global_batch
        batches = run.data.training_batches(run.layout, position)
        loss, norm = run.trainer.step(step, 1e-3, [unevenly_ignored(batch) for batch in batches])
        results.append((float(run.trainer.summed(loss)), float(norm)))
    return results


def start_and_step(arguments: list[str]) -> list[tuple[float, float]]:
    return uneven_steps(start(arguments))


def assert_as_alone(ranks: Ranks, size: int, shared: list[str], layout: str) -> None:
    """Losses and norms of three steps of 8 sequences are those of one process, to rounding."""
    alone = uneven_steps(Run(parse([*shared, "--micro-batch", "8"]), Mesh.single()))
    for result in ranks(size, start_and_step, [*shared, *shlex.split(layout)]):
        for (loss, norm), (loss_alone, norm_alone) in zip(result, alone, strict=True):
            assert loss == pytest.approx(loss_alone, rel=1e-5)
            assert norm == pytest.approx(norm_alone, rel=1e-4)


@pytest.fixture
def decoder_with_a_mean(tiny_page: Path, tmp_path: Path) -> Path:
    """The tiny page with the mean loss over whole logits, as a user's class has it."""
    page = tmp_path / "decoder_with_a_mean.py"
    text = tiny_page.read_text().replace('LOSS = "per_token"', 'LOSS = "local_mean"')
    lines, found, rest = text.partition("        return linear_cross_entropy(")
    assert found
    mean = (
        "        logits = self.output_layer(x)\n"
        "        flat = logits.flatten(0, 1), labels.flatten()\n"
        "        return F.cross_entropy(*flat, ignore_index=-100), logits\n"
    )
    page.write_text(lines + mean + rest.partition("\n")[2])
    return page


LAYOUTS = [  # processes, options; the step has 8 sequences
    (2, "--tp 2 --micro-batch 8"),
    (2, "--tp 2 --sequence-parallel --micro-batch 2"),
    (2, "--micro-batch 4"),
    (2, "--micro-batch 1"),
    (4, "--tp 2 --micro-batch 1"),
    (4, "--tp 2 --sequence-parallel --micro-batch 4"),
]
OVER_POSITIONS = [
    (2, "--cp 2 --micro-batch 8"),
    (2, "--cp 2 --cp-comm-type p2p --micro-batch 2"),
    (2, "--cp 2 --cp-comm-type a2a --micro-batch 4"),
    (4, "--cp 2 --micro-batch 2"),
    (4, "--cp 2 --cp-comm-type p2p --tp 2 --sequence-parallel --micro-batch 4"),
]
SHARDED = [
    (2, "--zero 1 --micro-batch 1"),
    (2, "--zero 2 --micro-batch 1"),
    (4, "--dp-replicate 2 --micro-batch 1"),
    (4, "--dp-replicate 2 --zero 1 --micro-batch 1"),
    (4, "--dp-replicate 4 --micro-batch 2"),
    (4, "--dp-replicate 2 --cp 2 --zero 2 --micro-batch 2"),
]
RECOMPUTED = [
    (2, "--cp 2 --recompute full --micro-batch 4"),
    (2, "--tp 2 --recompute selective --loss-chunks 3 --micro-batch 8"),
    (2, "--recompute selective --recompute-modules core_attn,mlp --micro-batch 2"),
    (2, "--tp 2 --sequence-parallel --recompute full --recompute-every 2 --micro-batch 4"),
]


@pytest.mark.parametrize(("size", "layout"), [*LAYOUTS, *OVER_POSITIONS, *SHARDED, *RECOMPUTED])
def test_losses_are_those_of_one_process_with_unevenly_ignored_labels(
    ranks: Ranks, tiny_page: Path, text: Path, size: int, layout: str
) -> None:
    shared = words(tiny_page, "--data", text, "--global-batch", 8, "--set", "hidden_dropout=0.1")
    assert_as_alone(ranks, size, shared, layout)


@pytest.mark.parametrize(("size", "layout"), [one for one in LAYOUTS if "seq" not in one[1]])
def test_a_mean_is_made_a_sum(
    ranks: Ranks, mean_page: Path, text: Path, size: int, layout: str
) -> None:
    # Its cumsum runs over positions, which sequence parallel and cp would cut.
    assert_as_alone(ranks, size, words(mean_page, "--data", text, "--global-batch", 8), layout)


@pytest.mark.parametrize(("size", "layout"), [*LAYOUTS[-1:], *OVER_POSITIONS])
def test_a_mean_over_a_part_of_the_positions_counts_by_its_labels(
    ranks: Ranks, decoder_with_a_mean: Path, text: Path, size: int, layout: str
) -> None:
    shared = words(decoder_with_a_mean, "--data", text, "--global-batch", 8)
    assert_as_alone(ranks, size, shared, layout)


@pytest.mark.parametrize(("size", "layout"), [LAYOUTS[1], *OVER_POSITIONS])
def test_packed_documents_are_kept_apart_alike(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, size: int, layout: str
) -> None:
    lines = text.read_text().splitlines()
    documents = tmp_path / "documents.jsonl"
    documents.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    shared = words(tiny_page, "--data", documents, "--global-batch", 8)
    apart = Run(parse([*shared, "--packed-documents"]), Mesh.single())
    assert uneven_steps(apart) != uneven_steps(Run(parse(shared), Mesh.single()))
    assert_as_alone(ranks, size, [*shared, "--packed-documents"], layout)


def test_held_out_losses_are_those_of_one_process(
    ranks: Ranks, tiny_page: Path, text: Path
) -> None:
    # 10 held-out sequences: no layout divides them.
    shared = words(tiny_page, "--data", text, "--steps", 2, "--global-batch", 12)
    alone = Run(parse([*shared, "--micro-batch", "12"]), Mesh.single()).train()
    for size, layout in (
        (2, "--micro-batch 3"),
        (2, "--tp 2 --micro-batch 4"),
        (4, "--tp 2 --micro-batch 6"),
        (4, "--cp 2 --cp-comm-type p2p --micro-batch 3"),
    ):
        for result in ranks(size, train, [*shared, *shlex.split(layout)]):
            assert result.held_out == pytest.approx(alone.held_out, rel=1e-5)


@pytest.mark.parametrize(
    "layout", ["--tp 2", "--cp 2 --cp-comm-type p2p --zero 2", "--async-save --recompute full"]
)
def test_a_resumed_run_is_the_uninterrupted_one(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, layout: str
) -> None:
    shared = words(tiny_page, "--data", text, "--steps", 4, "--micro-batch", 2, "--global-batch", 8)
    shared += ["--save-every", "2", "--set", "hidden_dropout=0.1", *shlex.split(layout)]
    whole = ranks(2, train, [*shared, "--out", str(tmp_path / "a")])[0]
    first = tmp_path / "a" / "step-00000002"
    resumed = ranks(2, train, [*shared, "--out", str(tmp_path / "b"), "--resume", str(first)])[0]
    assert resumed.losses == {step: whole.losses[step] for step in (3, 4)}
    assert resumed.norms == {step: whole.norms[step] for step in (3, 4)}
    assert_equal(tmp_path / "a" / "step-00000004", tmp_path / "b" / "step-00000004")


def test_a_checkpoint_loads_at_any_layout_bit_for_bit(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    shared = words(tiny_page, "--data", text, "--steps", 4, "--micro-batch", 2, "--global-batch", 8)
    shared += ["--save-every", "2", "--keep", "9"]
    whole = ranks(2, train, [*shared, "--tp", "2", "--out", str(tmp_path / "whole")])[0]
    first = tmp_path / "whole" / "step-00000002"
    for number, (size, layout) in enumerate(
        (
            (1, ""),
            (2, "--tp 2 --sequence-parallel"),
            (2, "--zero 1"),
            (4, "--tp 2"),
            (4, "--dp-replicate 2 --cp 2"),
        )
    ):
        out = tmp_path / str(number)
        arguments = [*shared, *shlex.split(layout), "--resume", str(first), "--out", str(out)]
        result = ranks(size, resave_then_train, arguments, out)[0]
        assert_equal(out / "again" / "step-00000002", first)
        assert sorted(result.losses) == [3, 4]
        for step, loss in result.losses.items():
            assert loss == pytest.approx(whole.losses[step], rel=1e-5)
        assert result.held_out[4] == pytest.approx(whole.held_out[4], rel=1e-5)


def resave_then_train(arguments: list[str], out: Path) -> Result:
    """Goes on from a checkpoint, and writes what was loaded first."""
    run = start(arguments)
    own, run.saver = run.saver, checkpoint.Saver(out / "again", run.mesh)
    run._save()
    run.saver.finish()
    run.saver = own
    return run.train()


def assert_equal(one: Path, other: Path) -> None:
    """Two checkpoints hold the same tensors, bit for bit."""
    for section in ("model", "optimizer"):
        first, second = (checkpoint.Stored(folder, section) for folder in (one, other))
        assert set(first) == set(second)
        for name in first:
            assert torch.equal(first[name], second[name]), (one, section, name)


@pytest.mark.parametrize(("size", "layout"), [(1, ""), (2, ""), (2, "--tp 2"), (2, "--cp 2")])
def test_bf16_resumes_bit_for_bit_and_keeps_float32_masters(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, size: int, layout: str
) -> None:
    shared = words(tiny_page, "--data", text, "--steps", 4, "--micro-batch", 2, "--global-batch", 8)
    dropout = ["--set", "hidden_dropout=0.1"]
    saving = [*shared, *dropout, "--save-every", "2", *shlex.split(layout)]
    out = tmp_path / "a"
    whole = ranks(size, train, [*saving, "--out", str(out)], "bf16")[0]
    resume = [*saving, "--out", str(tmp_path / "b"), "--resume", str(out / "step-00000002")]
    resumed = ranks(size, train, resume, "bf16")[0]
    assert resumed.losses == {step: whole.losses[step] for step in (3, 4)}
    assert_equal(tmp_path / "a" / "step-00000004", tmp_path / "b" / "step-00000004")
    exact = Run(parse([*shared, *dropout]), Mesh.single()).train()
    assert whole.losses != exact.losses
    assert whole.losses == pytest.approx(exact.losses, rel=1e-2)
