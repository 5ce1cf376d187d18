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


def test_a_refusal_is_a_sentence_and_status_2(folder: Path) -> None:
    done = specc("import", "hf", "nowhere.json")
    assert done.exit_code == 2
    assert done.output.startswith("error: There is no file or folder nowhere.json")
    specc("import", "hf", "Bytes-Llama")
    assert "is there already" in specc("import", "hf", "Bytes-Llama").output
    assert specc("import", "hf", "Bytes-Llama", "--force").exit_code == 0
    done = specc("weights", "import", "bytes_llama.py", "Bytes-Llama", "run")
    assert done.exit_code == 2 and "There is no page bytes_llama.py" in done.output
