"""Sampling from a checkpoint."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from specc.runtime import Mesh, checkpoint, sample, train
from specc.runtime.generation import Draw, generate
from specc.runtime.page import load_page
from specc.runtime.refusal import Refusal
from specc.runtime.sample import end_tokens, load


def run(*arguments: object) -> None:
    assert train.main([str(argument) for argument in arguments]) == 0


def test_a_sample_is_the_prompt_and_what_the_seed_draws(
    tiny_page: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(tiny_page, "--data", text, "--steps", 40, "--lr", 3e-3, "--out", out)

    def write(*arguments: object) -> str:
        capsys.readouterr()
        words = [tiny_page, out, "--prompt", "To be", "--tokens", 50, *arguments]
        assert sample.main([str(word) for word in words]) == 0
        return capsys.readouterr().out

    first = write()
    assert first.startswith("To be") and len(first.encode()) >= 50
    assert write() == first != write("--seed", 1)
    assert write("--temperature", 0) == write("--top-k", 1, "--seed", 3)


def test_numbers_of_a_reduced_copy_come_from_the_checkpoint(
    tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(tiny_page, "--data", text, "--steps", 1, "--set", "num_layers=1", "--out", out)
    model, facts, _ = load(load_page(tiny_page), out)
    assert len(model.layers) == 1 and facts.config["num_layers"] == 1  # type: ignore[arg-type]
    assert not model.training


def test_the_tokenizer_travels_with_the_checkpoint(
    tiny_page: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sorted(set(text.read_text().split()))[:100]
    library = Tokenizer(WordLevel({w: i for i, w in enumerate(["?", *words])}, unk_token="?"))
    library.pre_tokenizer = Whitespace()
    library.save(str(tmp_path / "words.json"))
    out = tmp_path / "out"
    run(
        tiny_page, "--data", text, "--steps", 1, "--seq-length", 8,
        "--tokenizer", tmp_path / "words.json", "--out", out,
    )  # fmt: skip
    (tmp_path / "words.json").unlink()
    assert sample.main([str(tiny_page), str(out), "--prompt", "?"]) == 0
    assert set(capsys.readouterr().out.split("\n")[-2].split()) <= {"?", *words}


def test_the_window_moves_and_unknown_ids_are_not_drawn() -> None:
    class Counts(torch.nn.Module):
        """Prefers the id that is the length of what it reads, then the highest of all."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor]:
            logits = torch.zeros(1, input_ids.shape[1], 10)
            logits[..., 9] = 2.0
            logits[..., input_ids.shape[1]] = 1.0
            return (logits,)

    likeliest = Draw(temperature=0)
    new = list(generate(Counts(), [0], 5, window=3, known=9, draw=likeliest))
    assert new == [1, 2, 3, 3, 3]
    assert list(generate(Counts(), [0], 2, draw=likeliest)) == [9, 9]


def test_a_page_of_a_users_class_is_sampled(mean_page: Path) -> None:
    model = load_page(mean_page).build(Mesh.single(), load_page(mean_page).config())
    assert len(list(generate(model, [1, 2], 4, window=16))) == 4


def test_end_tokens_are_named_or_those_of_an_imported_checkpoint(
    tiny_page: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(tiny_page, "--data", text, "--steps", 1, "--seq-length", 8, "--out", out)
    _, _, tokenizer = load(load_page(tiny_page), out)
    assert end_tokens(out, tokenizer, None) == frozenset()
    assert end_tokens(out, tokenizer, ["\n", "x"]) == frozenset(b"\nx")
    with pytest.raises(Refusal, match="'xy' is no token"):
        end_tokens(out, tokenizer, ["xy"])
    for given, ids in (("7", {7}), ("[7, 9]", {7, 9})):
        (checkpoint.find(out) / "generation_config.json").write_text(f'{{"eos_token_id": {given}}}')
        assert end_tokens(out, tokenizer, None) == ids
