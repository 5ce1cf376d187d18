"""A run in one process: it learns, resumes bit for bit, stops at a loss that is not finite."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specc.runtime import Mesh, checkpoint
from specc.runtime.data import MicroBatch
from specc.runtime.options import parse
from specc.runtime.refusal import Refusal
from specc.runtime.run import Result, Run
from specc.runtime.safetensors import Reader
from specc.runtime.trainer import Trainer


def train(page: Path, text: Path, *arguments: Any) -> Result:
    words = ["--data", text, "--log-every", 3, "--micro-batch", 4, *arguments]
    return Run(parse([str(page), *map(str, words)]), Mesh.single()).train()


def test_the_loss_falls_on_text_and_on_held_out_text(tiny_page: Path, text: Path) -> None:
    result = train(tiny_page, text, "--steps", 60, "--eval-every", 30, "--lr", 3e-3)
    assert sorted(result.losses) == list(range(1, 61))
    assert sorted(result.held_out) == [0, 30, 60]
    assert result.held_out[0] == pytest.approx(5.55, abs=0.1)
    assert result.held_out[60] < result.held_out[30] < 4 < result.held_out[0]
    assert result.losses[60] < 4


@pytest.mark.parametrize("page", ["tiny_page", "mean_page"])
def test_a_resumed_run_is_the_uninterrupted_one(
    page: str, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(page)
    arguments = ["--steps", 9, "--global-batch", 8, "--save-every", 4, "--seq-length", 16]
    if page == "tiny_page":
        arguments += ["--set", "hidden_dropout=0.2"]
    whole = train(file, text, *arguments, "--out", tmp_path / "a", "--keep", 3)
    assert whole.saved == tmp_path / "a" / "step-00000009"
    resumed = train(
        file, text, *arguments, "--out", tmp_path / "b", "--resume", tmp_path / "a/step-00000004"
    )
    assert resumed.losses == {step: loss for step, loss in whole.losses.items() if step > 4}
    assert resumed.norms == {step: norm for step, norm in whole.norms.items() if step > 4}
    assert resumed.held_out[9] == whole.held_out[9]
    for name in ("model.safetensors", "optimizer.safetensors", "checkpoint.json"):
        ends = [(tmp_path / out / "step-00000009" / name).read_bytes() for out in ("a", "b")]
        assert ends[0] == ends[1], name


def test_the_bare_flag_goes_on_in_the_same_folder(
    tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    first = train(tiny_page, text, "--steps", 3, "--out", tmp_path / "out")
    second = train(tiny_page, text, "--steps", 6, "--out", tmp_path / "out", "--resume")
    assert sorted(first.losses) + sorted(second.losses) == [1, 2, 3, 4, 5, 6]
    assert checkpoint.newest_step(tmp_path / "out") == 6


def test_old_checkpoints_go(tiny_page: Path, text: Path, tmp_path: Path) -> None:
    train(tiny_page, text, "--steps", 5, "--out", tmp_path / "out", "--save-every", 1)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "step-00000004",
        "step-00000005",
    ]


def test_a_checkpoint_holds_the_model_under_its_own_names(
    tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    run = Run(
        parse([str(tiny_page), "--data", str(text), "--steps", "1", "--out", str(tmp_path / "o")]),
        Mesh.single(),
    )
    saved = run.train().saved
    assert saved is not None
    state = run.trainer.model.state_dict()
    read = Reader(saved / "model.safetensors")
    assert set(read) == set(state)
    assert all(torch.equal(read[name], state[name]) for name in state)
    states = set(Reader(saved / "optimizer.safetensors"))
    assert states == {f"optim.{key}.{n}" for n in state for key in ("exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize("how", [(), ("--async-save",)])
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tiny_page: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str]
) -> None:
    step = Trainer.step

    def broken(self: Trainer, number: int, rate: float, batches: Any) -> Any:
        if number == 4:
            next(self.model.parameters()).data[:] = torch.nan
        return step(self, number, rate, batches)

    monkeypatch.setattr(Trainer, "step", broken)
    with pytest.raises(Refusal, match=r"Step 5 of 6 has loss nan .*step-00000004"):
        train(tiny_page, text, "--steps", 6, "--out", tmp_path / "out", "--save-every", 2, *how)
    assert checkpoint.newest_step(tmp_path / "out") == 4
    assert torch.isfinite(
        Reader(tmp_path / "out/step-00000004/model.safetensors")["embedding.weight"]
    ).all()


def test_accumulation_changes_nothing_but_rounding(tiny_page: Path, text: Path) -> None:
    arguments = ["--steps", 4, "--global-batch", 8, "--set", "hidden_dropout=0.1"]
    once = train(tiny_page, text, *arguments, "--micro-batch", 8)
    often = train(tiny_page, text, *arguments, "--micro-batch", 2)
    for step, loss in once.losses.items():
        assert often.losses[step] == pytest.approx(loss, rel=1e-5)
        assert often.norms[step] == pytest.approx(once.norms[step], rel=1e-4)


def test_a_copy_with_other_numbers_is_trained(tiny_page: Path, text: Path) -> None:
    run = Run(
        parse(
            [
                str(tiny_page),
                "--data",
                str(text),
                "--set",
                "num_layers=1",
                "--set",
                "rotary_base=1e3",
            ]
        ),
        Mesh.single(),
    )
    assert run.config.num_layers == 1 and run.config.rotary_base == 1000.0
    assert len(run.trainer.model.layers) == 1  # type: ignore[arg-type]


def test_a_page_that_states_no_loss_trains_on_its_scalar(
    mean_page: Path, text: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.py"
    page.write_text(mean_page.read_text().replace('LOSS = "local_mean"', 'LOSS = "custom"'))
    stated, own = (train(file, text, "--steps", 4) for file in (mean_page, page))
    assert own.losses == pytest.approx(stated.losses, rel=1e-5)
    assert own.held_out == pytest.approx(stated.held_out, rel=1e-3)


def test_layers_are_compiled_in_place(
    tiny_page: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **_: compiled.append(type(self).__name__)
    )
    Run(parse([str(tiny_page), "--data", str(text), "--compile"]), Mesh.single())
    assert compiled == ["TransformerLayer"] * 2


def test_tensorboard_has_the_scalars(tiny_page: Path, text: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(tiny_page, text, "--steps", 4, "--tensorboard", tmp_path / "tb")
    log = EventAccumulator(str(tmp_path / "tb"))
    log.Reload()
    assert set(log.Tags()["scalars"]) == {
        "loss", "held_out_loss", "norm", "lr", "tokens_per_second",
    }  # fmt: skip
    losses = {event.step: event.value for event in log.Scalars("loss")}
    assert losses == pytest.approx(result.losses)


def test_a_users_own_dropout_resumes_too(mean_page: Path, text: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    source = mean_page.read_text().replace("torch.tanh(self.up(y))", "F.dropout(self.up(y), 0.3)")
    page.write_text("import torch.nn.functional as F\n" + source)
    arguments = ["--steps", 6, "--global-batch", 8, "--save-every", 3]
    whole = train(page, text, *arguments, "--out", tmp_path / "a")
    torch.manual_seed(99)
    first = tmp_path / "a" / "step-00000003"
    resumed = train(page, text, *arguments, "--out", tmp_path / "b", "--resume", first)
    assert resumed.losses == {step: whole.losses[step] for step in (4, 5, 6)}


def test_held_out_sequences_without_a_label_are_refused(tiny_page: Path, text: Path) -> None:
    run = Run(parse([str(tiny_page), "--data", str(text), "--steps", "1"]), Mesh.single())
    ignored = torch.full((2, 8), -100)
    batch = MicroBatch(torch.zeros(2, 8, dtype=torch.int64), ignored, 0)
    with pytest.raises(Refusal, match="None of the held-out sequences has a label that counts"):
        run.trainer.evaluate([batch])
