"""Weights in and out: the exported folder is loaded by transformers, and is what came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from closeness import scatter
from imported_models import bring_in
from small_families import FAMILIES, make

from specc.huggingface import pieces
from specc.huggingface.export_weights import export_weights
from specc.huggingface.import_weights import import_weights


def there_and_back(theirs: Any, folder: Path, **options: Any) -> Any:
    """Saved, imported, exported, loaded."""
    theirs.save_pretrained(folder / "in", max_shard_size="30KB")
    page = bring_in(theirs).page(folder)
    checkpoint = import_weights(page, folder / "in", folder / "run")
    export_weights(page, checkpoint, folder / "out", **options)
    again, told = type(theirs).from_pretrained(
        folder / "out", output_loading_info=True, attn_implementation="eager", dtype="auto"
    )
    assert not told["missing_keys"] and not told["unexpected_keys"]
    return again


@pytest.mark.parametrize("family", FAMILIES)
def test_what_comes_in_goes_out_bit_for_bit(family: str, tmp_path: Path) -> None:
    theirs = make(family)
    scatter(theirs)
    again = there_and_back(theirs, tmp_path, shard_size=30_000)
    assert (tmp_path / "out" / "model.safetensors.index.json").is_file()
    ids = torch.arange(20)[None]
    assert torch.equal(again(ids).logits, theirs(ids).logits)
    state, before = again.state_dict(), theirs.state_dict()
    assert state.keys() == before.keys()
    assert all(torch.equal(state[name], before[name]) for name in before)


@pytest.mark.parametrize("family", ["gpt2", "gpt_oss"])
def test_so_it_does_in_many_pieces(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tensors of many gigabytes do, of which no more than a piece is in memory."""
    monkeypatch.setattr(pieces, "AT_ONCE", 100)
    theirs = make(family)
    again = there_and_back(theirs, tmp_path)
    state, before = again.state_dict(), theirs.state_dict()
    assert all(torch.equal(state[name], before[name]) for name in before)


def test_bfloat16_goes_out_as_it_came_in(tmp_path: Path) -> None:
    """By the dtype of the config; parameters are float32 in between."""
    theirs = make("llama").bfloat16()
    theirs.config.dtype = torch.bfloat16
    again = there_and_back(theirs, tmp_path)
    assert again.lm_head.weight.dtype == torch.bfloat16
    state, before = again.state_dict(), theirs.state_dict()
    assert all(torch.equal(state[name], before[name]) for name in before)


def test_another_dtype_is_the_rounded_one(tmp_path: Path) -> None:
    theirs = make("llama")
    there_and_back(theirs, tmp_path, dtype="float16")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert again.lm_head.weight.dtype == torch.float16
    assert torch.equal(again.lm_head.weight, theirs.lm_head.weight.half())


def test_names_may_lack_what_all_begin_with(tmp_path: Path) -> None:
    """As the first GPT-2 on the hub has them."""
    theirs = make("gpt2")
    theirs.transformer.save_pretrained(tmp_path / "in")
    theirs.config.architectures = ["GPT2LMHeadModel"]
    theirs.config.save_pretrained(tmp_path / "in")
    page = bring_in(theirs).page(tmp_path)
    checkpoint = import_weights(page, tmp_path / "in", tmp_path / "run")
    export_weights(page, checkpoint, tmp_path / "out")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out")
    assert torch.equal(again.lm_head.weight, theirs.lm_head.weight)
