"""Which checkpoint a run goes on from, and what it does at a restart of its job."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specc.runtime import Mesh, checkpoint
from specc.runtime.launch import Job
from specc.runtime.options import parse
from specc.runtime.refusal import Refusal
from specc.runtime.resume import resumed
from specc.runtime.run import Run


def options(page: Path, text: Path, out: Path, *more: object) -> Sequence[str]:
    words = (
        page,
        "--data",
        text,
        "--steps",
        4,
        "--save-every",
        2,
        "--micro-batch",
        2,
        "--out",
        out,
    )
    return [str(word) for word in (*words, *more)]


@pytest.fixture
def written(tiny_page: Path, text: Path, tmp_path: Path) -> Path:
    """A run's folder, whose checkpoints job "a" wrote."""
    out = tmp_path / "out"
    run = Run(parse(options(tiny_page, text, out)), Mesh.single(), job=Job("a", 0))
    run.train()
    return out


def test_a_restarted_job_goes_on_from_what_it_wrote(
    tiny_page: Path, text: Path, written: Path
) -> None:
    given = parse(options(tiny_page, text, written, "--steps", 6))
    run = Run(given, Mesh.single(), job=Job("a", 1))
    assert run.done == 4
    assert sorted(run.train().losses) == [5, 6]


def test_a_job_that_was_done_when_a_rank_was_lost_is_done(
    tiny_page: Path, text: Path, written: Path
) -> None:
    run = Run(parse(options(tiny_page, text, written)), Mesh.single(), job=Job("a", 1))
    assert run.train().losses == {}


def test_a_first_attempt_that_is_refused_stays_so(
    tiny_page: Path, text: Path, written: Path
) -> None:
    given = parse(options(tiny_page, text, written))
    for job in (None, Job("a", 0), Job("b", 0), Job("b", 1)):
        with pytest.raises(Refusal, match="step 4 and this run begins at step 0"):
            Run(given, Mesh.single(), job=job)


def test_a_restart_without_a_checkpoint_starts_as_the_first_attempt_did(
    tiny_page: Path, text: Path, written: Path, tmp_path: Path
) -> None:
    given = parse(options(tiny_page, text, tmp_path / "new"))
    facts = Run(given, Mesh.single(), job=Job("b", 1)).facts()
    assert resumed(given, facts, Job("b", 1)) is None
    other = replace(given, resume=written / "step-00000002")
    found = resumed(other, facts, Job("b", 1))
    assert found is not None and found[1].step == 2


def test_the_job_is_noted_under_torchrun_only(tiny_page: Path, text: Path, written: Path) -> None:
    assert checkpoint.read_facts(checkpoint.find(written)).written_at["job"] == "a"
    run = Run(parse(options(tiny_page, text, written, "--resume", "--steps", 5)), Mesh.single())
    assert "job" not in run.facts().written_at
