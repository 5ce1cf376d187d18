"""A page in a pipeline equals one process, by every schedule: initial values bit for bit; loss,
gradients, their norm and a held-out loss before and after a step to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_pages import LAYERS, written
from pipeline_step import SEED, SHAPE, STEP, VOCABULARY, Layout, mesh_of, run, run_all, trainer_of

from specc.runtime import Mesh, Turn, begin_micro_batch, gradients, trainer
from specc.runtime.one_step import CLOSE
from specc.runtime.optimizer import STATES
from specc.runtime.parameters import local_tensor
from specc.runtime.pipeline_schedules import SCHEDULES
from specc.runtime.pipeline_split import WeightHalf
from specc.runtime.recompute import Recompute
from specc.runtime.refusal import Refusal
from specc.runtime.stage_models import stage_models
from specc.runtime.stage_parts import held_parameter, stage_parts
from specc.runtime.trainer import Training

Ranks = Callable[..., list[Any]]
Written = tuple[str, dict[str, Any]]  # a page's file, and one process's step
TIED = "embedding.word_embeddings.weight"
# AdamW's first step has the sign of each gradient, also of those that are zero but for rounding, so
# that a step differs where its gradients do not.
AFTER_A_STEP = 3e-4


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Written]:
    """The page, and its step in one process, in as many micro-batches as there are sequences."""
    folder = tmp_path_factory.mktemp("pipelines")

    @cache
    def made(name: str, packed: bool = False) -> Written:
        file = str(written(folder, name))
        return file, run(file, Layout(accumulation=8, packed=packed))

    return made


def assert_equal(ranks: Ranks, size: int, page: Written, layouts: list[Layout]) -> None:
    file, one = page
    results = ranks(size, run_all, file, layouts, one["values"])
    wrong = []
    for number, layout in enumerate(layouts):
        seen: Counter[str] = Counter()
        for rank, result in enumerate(results):
            for name, value in result[number].items():
                kind = name.split()[0]
                if kind in ("values", "names", "stepped"):
                    continue
                seen[name] += 1
                a, b = torch.as_tensor(value), torch.as_tensor(one[name])
                limit = AFTER_A_STEP if kind == "again" else CLOSE
                if kind == "initial" and not torch.equal(a, b):
                    wrong.append(f"{layout}: rank {rank}: {name}")
                elif not (a - b).abs().max() <= limit * b.abs().max():
                    wrong.append(f"{layout}: rank {rank}: {name} {(a - b).abs().max()}")
        names = {name for name in one if name.split()[0] in ("initial", "gradient")}
        wrong += [f"{layout}: nowhere {name}" for name in names - seen.keys()]
    assert not wrong, "\n".join(wrong[:30])


@pytest.mark.parametrize("page", LAYERS)
def test_two_stages_and_more(ranks: Ranks, alone: Callable[..., Written], page: str) -> None:
    layouts = [Layout(pp=2, schedule=schedule) for schedule in SCHEDULES]
    layouts += [
        Layout(pp=2, accumulation=1),  # fewer micro-batches than stages
        Layout(pp=2, accumulation=2, schedule="zbv"),
        Layout(pp=2, schedule="interleaved", stages_per_rank=4),
        Layout(pp=2, recompute="full"),
        Layout(pp=2, recompute="selective", schedule="interleaved"),
    ]
    assert_equal(ranks, 2, alone(page), layouts)


@pytest.mark.parametrize("page", ["llama", "gpt2"])
def test_four_ranks(ranks: Ranks, alone: Callable[..., Written], page: str) -> None:
    layouts = [Layout(pp=4, accumulation=8, schedule=schedule) for schedule in SCHEDULES]
    assert_equal(ranks, 4, alone(page), layouts)


MIXED = {
    "llama": [
        Layout(pp=2, tp=2),
        Layout(pp=2, tp=2, schedule="zbv", sequence_parallel=True, loss_chunks=2),
        Layout(pp=2, cp=2, schedule="interleaved"),
        Layout(pp=2, zero=3),
        Layout(pp=2, zero=2, dp_replicate=2, schedule="gpipe"),
        Layout(pp=2, schedule="dualpipev"),
    ],
    "gpt2": [
        Layout(pp=2, tp=2, sequence_parallel=True, schedule="interleaved"),
        Layout(pp=2, tp=2, schedule="dualpipev"),
        Layout(pp=2, cp=2, schedule="zbv"),
        Layout(pp=2, zero=3, schedule="interleaved"),
        Layout(pp=2, zero=2),
        Layout(pp=2, schedule="zbv", dp_replicate=2),
    ],
}


@pytest.mark.parametrize("page", MIXED)
def test_with_other_axes_inside_a_stage(
    ranks: Ranks, alone: Callable[..., Written], page: str
) -> None:
    assert_equal(ranks, 4, alone(page), MIXED[page])


def test_packed_documents_reach_every_stage(ranks: Ranks, alone: Callable[..., Written]) -> None:
    layouts = [Layout(pp=2, packed=True), Layout(pp=2, packed=True, schedule="zbv")]
    assert_equal(ranks, 2, alone("llama", packed=True), layouts)


def test_layers_by_hand_and_by_cost(ranks: Ranks, alone: Callable[..., Written]) -> None:
    """A stage without layers too; and the head makes the last stage's part smaller."""
    file, one = alone("llama")
    layouts = [Layout(pp=2), Layout(pp=2, layers_per_stage=(9, 0), recompute="full")]
    assert_equal(ranks, 2, (file, one), layouts)
    (first, _), (last, _) = _layers(ranks(2, run_all, file, layouts[:1], one["values"]))
    assert (first, last) == (5, 4)
    with pytest.raises(AssertionError, match="sum to 8, and there are 9 layers"):
        ranks(2, run_all, file, [Layout(pp=2, layers_per_stage=(4, 4))], one["values"])


def _layers(results: list[Any]) -> list[tuple[int, set[str]]]:
    found = []
    for (result,) in results:
        names = {n.split(".")[2] for n in result["names"] if n.startswith("decoder.layers.")}
        found.append((len(names), names))
    return found


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_a_shared_table_stays_one(
    ranks: Ranks, alone: Callable[..., Written], schedule: str
) -> None:
    """The copies on the first and the last stage and their optimizer's states, bit for bit."""
    file, _ = alone("gpt2")
    results = ranks(2, _tables, file, Layout(pp=2, schedule=schedule))
    held = [tensors for result in results for tensors in result]
    assert len(held) == (2 if schedule == "1f1b" else 1)
    for tensors in held[1:]:
        assert all(torch.equal(a, b) for a, b in zip(tensors, held[0], strict=True))


def _tables(file: str, layout: Layout) -> list[list[torch.Tensor]]:
    from specc.runtime.one_step import Case, make_batch, micro_batches

    mesh = mesh_of(layout)
    trainer = trainer_of(file, layout, mesh)
    batch = make_batch(VOCABULARY, SHAPE, packed=False)
    for step in range(3):
        batches = list(micro_batches(batch, mesh, Case(accumulation=layout.accumulation)))
        trainer.step(STEP + step, 1e-2, batches)
    parts = stage_parts(trainer.model)
    assert parts is not None and TIED in parts.table
    if mesh.pp.rank not in parts.holders[TIED]:
        return []
    parameter = held_parameter(trainer.model, TIED)
    states = trainer.optimizer.state[parameter]
    return [[local_tensor(t) for t in (parameter, *(states[name] for name in STATES))]]


def test_bfloat16_is_as_without_a_pipeline(ranks: Ranks, alone: Callable[..., Written]) -> None:
    """Bit for bit, at the same data parallel layout: no schedule adds up in another precision."""
    file, one = alone("llama")
    schedules = {"1f1b": 3, "interleaved": 2, "zbv": 1, "dualpipev": 1}  # with a stage of ZeRO
    plain = [Layout(zero=zero, dtype=torch.bfloat16) for zero in schedules.values()]
    layouts = [replace(p, pp=2, schedule=s) for p, s in zip(plain, schedules, strict=True)]
    expected, *_ = ranks(2, run_all, file, plain, one["values"])
    for result in ranks(4, run_all, file, layouts, one["values"]):
        for layout, found, wanted in zip(layouts, result, expected, strict=True):
            for name, value in found.items():
                if name.startswith("gradient"):
                    assert torch.equal(value, wanted[name]), (layout, name)


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _nothing(*given: object) -> None:
    """Leaves out what it stands for."""


def _wrong_turn(model: torch.nn.Module, turn: Turn) -> None:
    begin_micro_batch(model, replace(turn, first_sequence=turn.first_sequence + 1))


MISTAKES: dict[str, tuple[Layout, Any, str, Any]] = {
    "a shared table's gradients stay apart": (Layout(pp=2), trainer, "sum_over_stages", _nothing),
    "on one rank too": (Layout(pp=2, schedule="zbv"), trainer, "sum_over_stages", _nothing),
    "a twin keeps its first values": (
        Layout(pp=2, schedule="zbv"),
        trainer,
        "refresh_twins",
        _nothing,
    ),
    "a recompute is of another micro-batch": (
        Layout(pp=2, recompute="full"),
        trainer._Step,
        "begin_backward",
        _nothing,
    ),
    "a dropout mask is of another sequence": (
        Layout(pp=2),
        trainer,
        "begin_micro_batch",
        _wrong_turn,
    ),
    "a shared table counts twice": (
        Layout(pp=2),
        gradients,
        "_stages_with",
        lambda model, name: (0,),
    ),
    "weights' gradients of one half are lost": (
        Layout(pp=2, schedule="zbv"),
        WeightHalf,
        "run",
        lambda half: iter(()),
    ),
}


def _mistaken(file: str, mistake: str, values: dict[str, Any]) -> dict[str, Any]:
    layout, owner, name, value = MISTAKES[mistake]
    with _patched(owner, name, value):
        return run(file, layout, values)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(ranks: Ranks, alone: Callable[..., Written], mistake: str) -> None:
    """Of the runtime, on a page with dropout and a shared table: some number is another one."""
    file, one = alone("gpt2")
    worst = 0.0
    for found in ranks(2, _mistaken, file, mistake, one["values"]):
        for name, value in found.items():
            if name.startswith(("gradient", "norm", "loss", "held-out")):
                a, b = torch.as_tensor(value), torch.as_tensor(one[name])
                worst = max(worst, float((a - b).abs().max() / b.abs().max()))
    assert worst > 10 * CLOSE


def _refused(file: str, change: dict[str, Any], pp: int) -> str:
    from specc.runtime.page import load_page
    from specc.runtime.trainer import Trainer

    page = load_page(file)
    mesh = Mesh.launch(pp=pp)
    with pytest.raises(Refusal) as refusal:
        Trainer(page, page.config(), mesh, Training(**change), seed=SEED)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schedule": "1f2b"}, "'1f2b' is not one of gpipe, 1f1b"),
        ({"schedule": "interleaved", "accumulation": 3}, "3 of a step are no multiple"),
        ({"schedule": "dualpipev", "accumulation": 3}, "each of its 4 stages, and a step has 3"),
        ({"schedule": "zbv", "compile": True}, "leave --compile"),
        ({"schedule": "zbv", "recompute": Recompute("full")}, "leave --recompute"),
        ({"schedule": "zbv", "fsdp": True, "zero": 3}, "give --zero 1"),
        ({"stages_per_rank": 2}, "1f1b has 1 on a rank"),
        ({"schedule": "interleaved", "stages_per_rank": 5, "accumulation": 2}, "10 stages share"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    ranks: Ranks, alone: Callable[..., Written], change: dict[str, Any], sentence: str
) -> None:
    file, _ = alone("llama")
    for found in ranks(2, _refused, file, change, 2):
        assert sentence in found


def test_a_page_without_stages_is_refused(
    ranks: Ranks, alone: Callable[..., Written], tmp_path: Path
) -> None:
    text = Path(alone("llama")[0]).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("FIRST_STAGE")]
    page = tmp_path / "page.py"
    page.write_text("\n".join(lines))
    assert "does not name LAYERS, FIRST_STAGE" in ranks(2, _refused, str(page), {}, 2)[0]
    page.write_text("\n".join([*lines, 'NO_STAGES = "line 7 adds the embedding again"']))
    assert "stages of a pipeline: line 7 adds" in ranks(2, _refused, str(page), {}, 2)[0]


def test_options_of_a_pipeline_need_one(alone: Callable[..., Written]) -> None:
    layout = Layout(layers_per_stage=(9,))
    with pytest.raises(Refusal, match="pp is 1"):
        trainer_of(alone("llama")[0], layout, Mesh.single())


def test_one_stage_is_the_model_itself(alone: Callable[..., Written]) -> None:
    trainer = trainer_of(alone("llama")[0], Layout(), Mesh.single())
    assert trainer.pipeline is None and stage_models(trainer.model) == (trainer.model,)
