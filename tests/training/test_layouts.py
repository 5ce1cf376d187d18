"""The same run in several processes: losses, norms, checkpoints, at every layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specc.runtime import Mesh, checkpoint
from specc.runtime.data import IGNORED, MicroBatch
from specc.runtime.options import parse
from specc.runtime.run import Result, Run

Ranks = Callable[..., list[Any]]
DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}


def start(arguments: list[str], tp: int, sp: bool = False, dtype: str = "float32") -> Run:
    mesh = Mesh.launch(tp=tp, sequence_parallel=sp, dtype=DTYPES[dtype])
    return Run(parse(arguments), mesh)


def train(arguments: list[str], tp: int, sp: bool = False, dtype: str = "float32") -> Result:
    return start(arguments, tp, sp, dtype).train()


def words(*arguments: Any) -> list[str]:
    return [str(argument) for argument in arguments]


def unevenly_ignored(batch: MicroBatch) -> MicroBatch:
    """Ignores more labels the later a sequence stands in its step: up to all but one."""
    labels = batch.labels.clone()
    for row in range(len(labels)):
        index = batch.first_sequence + row
        labels[row, : (5 * index) % labels.shape[1]] = IGNORED
    return MicroBatch(batch.input_ids, labels, batch.first_sequence)


def uneven_steps(run: Run, steps: int = 3) -> list[tuple[float, float]]:
    """Each step's loss and norm when labels are ignored unevenly."""
    results = []
    for step in range(steps):
        position = step * run.layout.global_batch
        batches = run.data.training_batches(run.layout, position)
        loss, norm = run.trainer.step(step, 1e-3, [unevenly_ignored(batch) for batch in batches])
        results.append((float(run.trainer.summed(loss)), float(norm)))
    return results


def start_and_step(arguments: list[str], tp: int, sp: bool) -> list[tuple[float, float]]:
    return uneven_steps(start(arguments, tp, sp))


LAYOUTS = [  # processes, tp, sequence parallel, micro-batch: the step has 8 sequences
    (2, 2, False, 8),
    (2, 2, True, 2),
    (2, 1, False, 4),
    (2, 1, False, 1),
    (4, 2, False, 1),
    (4, 2, True, 4),
]


@pytest.mark.parametrize(("size", "tp", "sp", "micro"), LAYOUTS)
@pytest.mark.parametrize("page", ["tiny_page", "mean_page"])
def test_losses_are_those_of_one_process_with_unevenly_ignored_labels(
    ranks: Ranks,
    request: pytest.FixtureRequest,
    text: Path,
    page: str,
    size: int,
    tp: int,
    sp: bool,
    micro: int,
) -> None:
    if page == "mean_page" and sp:
        return  # its cumsum runs over positions, which sequence parallel cuts
    shared = words(request.getfixturevalue(page), "--data", text, "--global-batch", 8)
    if page == "tiny_page":
        shared += ["--set", "hidden_dropout=0.1"]
    alone = uneven_steps(Run(parse([*shared, "--micro-batch", "8"]), Mesh.single()))
    results = ranks(size, start_and_step, [*shared, "--micro-batch", str(micro)], tp, sp)
    for result in results:
        for (loss, norm), (loss_alone, norm_alone) in zip(result, alone, strict=True):
            assert loss == pytest.approx(loss_alone, rel=1e-5)
            assert norm == pytest.approx(norm_alone, rel=1e-4)


def test_held_out_losses_are_those_of_one_process(
    ranks: Ranks, tiny_page: Path, text: Path
) -> None:
    # 10 held-out sequences: no layout divides them.
    shared = words(tiny_page, "--data", text, "--steps", 2, "--global-batch", 12)
    alone = Run(parse([*shared, "--micro-batch", "12"]), Mesh.single()).train()
    for size, tp, micro in ((2, 1, 3), (2, 2, 4), (4, 2, 6)):
        for result in ranks(size, train, [*shared, "--micro-batch", str(micro)], tp):
            assert result.held_out == pytest.approx(alone.held_out, rel=1e-5)


def test_a_checkpoint_loads_at_any_layout_bit_for_bit(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    shared = words(tiny_page, "--data", text, "--steps", 4, "--micro-batch", 2, "--global-batch", 8)
    shared += ["--save-every", "2", "--keep", "9"]
    whole = ranks(2, train, [*shared, "--out", str(tmp_path / "whole")], 2)[0]
    first = tmp_path / "whole" / "step-00000002"
    for size, tp, sp in ((1, 1, False), (2, 2, True), (2, 1, False), (4, 2, False), (4, 1, False)):
        out = tmp_path / f"{size}-{tp}-{sp}"
        arguments = [*shared, "--resume", str(first), "--out", str(out)]
        result = ranks(size, resave_then_train, arguments, tp, sp, out)[0]
        assert_equal(out / "again" / "step-00000002", first)
        assert sorted(result.losses) == [3, 4]
        for step, loss in result.losses.items():
            assert loss == pytest.approx(whole.losses[step], rel=1e-5)
        assert result.held_out[4] == pytest.approx(whole.held_out[4], rel=1e-5)


def resave_then_train(arguments: list[str], tp: int, sp: bool, out: Path) -> Result:
    """Goes on from a checkpoint, and writes what was loaded first."""
    run = start(arguments, tp, sp)
    own, run.saver = run.saver, checkpoint.Saver(out / "again", run.mesh)
    run._save()
    run.saver = own
    return run.train()


def assert_equal(one: Path, other: Path) -> None:
    """Two checkpoints hold the same tensors, bit for bit."""
    for section in ("model", "optimizer"):
        first, second = (checkpoint.Stored(folder, section) for folder in (one, other))
        assert set(first) == set(second)
        for name in first:
            assert torch.equal(first[name], second[name]), (one, section, name)


@pytest.mark.parametrize(("size", "tp"), [(1, 1), (2, 1), (2, 2)])
def test_bf16_resumes_bit_for_bit_and_keeps_float32_masters(
    ranks: Ranks, tiny_page: Path, text: Path, tmp_path: Path, size: int, tp: int
) -> None:
    shared = words(tiny_page, "--data", text, "--steps", 4, "--micro-batch", 2, "--global-batch", 8)
    shared += ["--save-every", "2", "--set", "hidden_dropout=0.1"]
    out = tmp_path / "a"
    whole = ranks(size, train, [*shared, "--out", str(out)], tp, False, "bf16")[0]
    resume = [*shared, "--out", str(tmp_path / "b"), "--resume", str(out / "step-00000002")]
    resumed = ranks(size, train, resume, tp, False, "bf16")[0]
    assert resumed.losses == {step: whole.losses[step] for step in (3, 4)}
    assert_equal(tmp_path / "a" / "step-00000004", tmp_path / "b" / "step-00000004")
    exact = Run(parse(shared[:-4]), Mesh.single()).train()
    assert whole.losses != exact.losses
    assert whole.losses == pytest.approx(exact.losses, rel=1e-2)
