"""`specc import hf`, `specc compile`, `specc weights`, `specc sample`: one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from click.testing import CliRunner, Result
from small_families import make

from specc.compiler.cli import cli
from specc.runtime.generation import Draw, generate
from specc.runtime.page import load_page
from specc.runtime.sample import end_tokens, load
from specc.runtime.train import main as train


def specc(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory: Bytes-Llama is a model of bytes, with an end."""
    theirs = make("llama", vocab_size=256)
    theirs.generation_config.eos_token_id = 10
    theirs.save_pretrained(tmp_path / "Bytes-Llama")
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_from_a_folder_to_text_and_back(folder: Path) -> None:
    done = specc("import", "hf", "Bytes-Llama")
    assert done.output == "wrote bytes_llama_spec.py and bytes_llama_hf.yaml\n"
    spec = (folder / "bytes_llama_spec.py").read_text()
    assert spec.startswith('"""Bytes-Llama, from its Hugging Face config."""\n')
    assert specc("compile", "bytes_llama_spec.py").exit_code == 0
    done = specc("weights", "import", "bytes_llama.py", "Bytes-Llama", "run")
    assert done.output == "wrote run/step-00000000\n"
    assert (folder / "run/step-00000000/generation_config.json").is_file()

    done = specc("weights", "export", "bytes_llama.py", "run", "out")
    assert done.output == "wrote out\n"
    load = transformers.LlamaForCausalLM.from_pretrained
    again, before = load("out"), load("Bytes-Llama")
    ids = torch.arange(30)[None]
    assert torch.equal(again(ids).logits, before(ids).logits)
    assert again.generation_config.eos_token_id == 10


def test_sampling_is_greedy_as_theirs_and_stops_at_the_end(folder: Path) -> None:
    specc("import", "hf", "Bytes-Llama")
    specc("compile", "bytes_llama_spec.py", "--no-validate")
    specc("weights", "import", "bytes_llama.py", "Bytes-Llama", "run")
    model, facts, tokenizer = load(load_page("bytes_llama.py"), folder / "run")
    theirs = transformers.LlamaForCausalLM.from_pretrained("Bytes-Llama")
    prompt = list(b"To be")
    wanted = theirs.generate(
        torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None
    )[0, len(prompt) :].tolist()
    ends = end_tokens(folder / "run", tokenizer, None)
    assert ends == {10}

    def sampled(ends: frozenset[int], cache: bool) -> list[int]:
        found = generate(
            model,
            prompt,
            12,
            draw=Draw(temperature=0.0),
            window=facts.seq_length,
            ends=ends,
            cache=cache,
            say=pytest.fail,
        )
        return list(found)

    for cache in (False, True):
        assert sampled(frozenset(), cache) == wanted
        place = wanted.index(wanted[3])  # as if it were an end, which is the last that is given
        assert sampled(frozenset({wanted[3]}), cache) == wanted[: place + 1]


def test_training_begins_with_imported_weights(folder: Path) -> None:
    specc("import", "hf", "Bytes-Llama")
    assert specc("compile", "bytes_llama_spec.py", "--no-validate").exit_code == 0
    specc("weights", "import", "bytes_llama.py", "Bytes-Llama", "run")
    (folder / "text.txt").write_text("What a piece of work is a man. " * 50)
    common = ["bytes_llama.py", "--data", "text.txt", "--seq-length", "16", "--micro-batch", "2"]
    # A step of no length: what comes out is what came in.
    rest = ["--steps", "1", "--lr", "1e-30", "--min-lr", "0", "--weight-decay", "0"]
    assert train([*common, *rest, "--init", "run", "--out", "tuned"]) == 0
    specc("weights", "export", "bytes_llama.py", "tuned", "out")
    load = transformers.LlamaForCausalLM.from_pretrained
    state, before = load("out").state_dict(), load("Bytes-Llama").state_dict()
    assert all(torch.equal(state[name], before[name]) for name in before)

    specc("compile", "bytes_llama_spec.py", "-o", "other.py", "--set", "config.num_layers=2",
          "--no-validate")  # fmt: skip
    assert train(["other.py", *common[1:], *rest, "--init", "run"]) == 2


def test_a_refusal_is_a_sentence_and_status_2(folder: Path) -> None:
    done = specc("import", "hf", "nowhere.json")
    assert done.exit_code == 2
    assert done.output.startswith("error: There is no file or folder nowhere.json")
    specc("import", "hf", "Bytes-Llama")
    assert "is there already" in specc("import", "hf", "Bytes-Llama").output
    assert specc("import", "hf", "Bytes-Llama", "--force").exit_code == 0
    done = specc("weights", "import", "bytes_llama.py", "Bytes-Llama", "run")
    assert done.exit_code == 2 and "There is no page bytes_llama.py" in done.output
