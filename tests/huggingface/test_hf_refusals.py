"""What is wrong is told in a sentence, and nothing is left half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from imported_models import bring_in
from safetensors.torch import load_file, save_file
from small_families import make

from specc.huggingface.export_weights import export_weights
from specc.huggingface.import_weights import import_weights
from specc.huggingface.read import read_config
from specc.huggingface.source import read_source
from specc.huggingface.write import import_model
from specc.runtime.refusal import Refusal

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
SIZES = {"vocab_size": 32, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"rms_norm_epsilon": 1.0}, "`rms_norm_epsilon` = 1.0; did you mean `rms_norm_eps`?"),
        ({"brand_new": {"a": 1}}, "does not know: `brand_new` = {'a': 1}"),
        ({"hidden_size": "16"}, "`hidden_size` is '16'; it has to be a whole number above 0"),
        ({"rms_norm_eps": None}, "`rms_norm_eps` is None; it has to be a number"),
        ({"hidden_act": "relu"}, "`hidden_act` is 'relu'; supported are silu"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "supported rope types are"),
        ({"rope_scaling": {"rope_type": "linear"}}, "its `factor` has to be a number"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}},
            "the rope type `linear` has no use for `beta_fast`",
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, "`architectures` is"),
        ({"is_encoder_decoder": True}, "`is_encoder_decoder` is True; supported is False"),
        ({"num_key_value_heads": 3}, "`num_attention_heads`=2 does not divide into"),
        ({"model_type": "wonder"}, "`model_type` is 'wonder', a family that specc does not know"),
        ({"model_type": None}, "no `model_type`"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_field_that_is_wrong_or_not_known(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_config(LLAMA | SIZES | changed)
    assert said in str(refused.value)


def test_what_says_nothing_of_the_model_may_stand_there() -> None:
    read_config(LLAMA | SIZES | {"bos_token_id": 7, "pretraining_tp": 1, "top_p": 0.9})


def test_a_config_that_is_no_json_object(tmp_path: Path) -> None:
    for text, said in (("{", "cannot be read as JSON"), ("[]", "holds a list")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(Refusal, match=said):
            read_source(str(tmp_path))
    with pytest.raises(Refusal, match="no file or folder"):
        read_source(str(tmp_path / "missing.json"))


def test_nothing_is_written_over_and_nothing_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | SIZES | {"hidden_act": "relu"}))
    spec = tmp_path / "a_spec.py"
    with pytest.raises(Refusal, match="hidden_act"):
        import_model(str(tmp_path), spec)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | SIZES))
    spec.write_text("mine")
    with pytest.raises(Refusal, match="is there already"):
        import_model(str(tmp_path), spec)
    assert spec.read_text() == "mine"


# --- weights

Change = Callable[[Path], None]


def _truncate(folder: Path) -> None:
    file = folder / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def _remove(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def _edit(change: Callable[[dict[str, torch.Tensor]], None]) -> Change:
    def run(folder: Path) -> None:
        file = folder / "model-00001-of-00003.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)

    return run


def _index(change: Callable[[dict[str, str]], None]) -> Change:
    def run(folder: Path) -> None:
        file = folder / "model.safetensors.index.json"
        values = json.loads(file.read_text())
        change(values["weight_map"])
        file.write_text(json.dumps(values))

    return run


def _other_base(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"rope_theta": 77.0}))


EMBEDDING = "model.embed_tokens.weight"
BROKEN: dict[str, tuple[Change, str]] = {
    "truncated": (_truncate, "cut short or written over"),
    "missing shard": (_remove, "lacks model-00002-of-00003.safetensors, a shard"),
    "wrong shape": (
        _edit(lambda t: t.update({EMBEDDING: t[EMBEDDING][:-1].clone()})),
        "has model.embed_tokens.weight as [60, 32], and the page needs [61, 32]",
    ),
    "quantised": (
        _edit(lambda t: t.update({EMBEDDING: t[EMBEDDING].to(torch.float8_e4m3fn)})),
        "which is quantised",
    ),
    "not in its shard": (_edit(lambda t: t.__delitem__(EMBEDDING)), "has no model.embed_tokens"),
    "missing tensor": (_index(lambda m: m.__delitem__(EMBEDDING)), "lacks model.embed_tokens"),
    "outside": (_index(lambda m: m.update(x="../x")), "no file of this folder"),
    "another model": (_other_base, "says rotary_base=77.0"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_folder_leaves_no_checkpoint(broken: str, tmp_path: Path) -> None:
    theirs = make("llama")
    theirs.save_pretrained(tmp_path / "in", max_shard_size="50KB")
    assert len(list((tmp_path / "in").glob("*.safetensors"))) == 3
    page = bring_in(theirs).page(tmp_path)
    change, said = BROKEN[broken]
    change(tmp_path / "in")
    with pytest.raises(Refusal) as refused:
        import_weights(page, tmp_path / "in", tmp_path / "run")
    assert said in str(refused.value)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_folder_with_a_tensor_too_many(tmp_path: Path) -> None:
    theirs = make("llama")
    theirs.save_pretrained(tmp_path / "in")
    file = tmp_path / "in" / "model.safetensors"
    save_file(load_file(file) | {"extra.weight": torch.zeros(2)}, file)
    with pytest.raises(Refusal, match=r"has extra\.weight, for which"):
        import_weights(bring_in(theirs).page(tmp_path), tmp_path / "in", tmp_path / "run")


def test_a_folder_of_pickles_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(Refusal, match=r"pytorch_model\.bin is a pickle"):
        import_weights(bring_in(make("llama")).page(tmp_path), tmp_path / "in", tmp_path / "run")


def test_export_writes_over_nothing_and_checks_the_page(tmp_path: Path) -> None:
    theirs = make("llama")
    theirs.save_pretrained(tmp_path / "in")
    page = bring_in(theirs).page(tmp_path)
    run = import_weights(page, tmp_path / "in", tmp_path / "run")
    (tmp_path / "out").mkdir()
    with pytest.raises(Refusal, match="is there already"):
        export_weights(page, run, tmp_path / "out")
    page.write_text(page.read_text() + "\n# Changed.\n")
    with pytest.raises(Refusal, match="was written with a page with body"):
        export_weights(page, run, tmp_path / "other")
    assert not (tmp_path / "other").exists()
