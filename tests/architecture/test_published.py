"""The specs of published models have the published numbers of parameters, and transformers'."""

from __future__ import annotations

import published_models
import published_peers
import pytest
from torch import nn

# Of the model cards' safetensors and the papers' tables; published/*_spec.py cite them.
TOTALS = {
    "deepseek_v3": 671_026_404_352,
    "gemma2_9b": 9_241_705_984,
    "gpt2_small": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "llama2_7b": 6_738_415_616,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama31_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
    "mistral_7b": 7_241_732_096,
    "mixtral_8x7b": 46_702_792_704,
    "olmo_7b": 6_888_095_744,
    "phi3_mini": 3_821_079_552,
    "pythia_69b": 6_857_302_016,
    "qwen25_7b": 7_615_616_512,
    "qwen3_06b": 596_049_920,
    "qwen3_8b": 8_190_735_360,
    "qwen3_32b": 32_762_123_264,
    "qwen3_30b_a3b": 30_532_122_624,
    "starcoder2_3b": 3_030_371_328,
}


def sizes(model: nn.Module, *, without: str = "") -> int:
    return sum(
        p.numel() for name, p in model.named_parameters() if not without or without not in name
    )


@pytest.mark.parametrize("name", published_models.NAMES)
def test_parameters_are_the_published_number_and_transformers_own(name: str) -> None:
    # gpt-oss has experts, for which the spec has a dense stand-in.
    without = ".mlp." if name == "gpt_oss_20b" else ""
    # A router's bias is a parameter without a gradient here, a buffer there.
    ours = sizes(published_models.model(name), without=without or ".expert_bias")
    assert ours == published_peers.parameters(name, without=without)
    if name in TOTALS:
        assert ours == TOTALS[name]


def test_every_model_has_a_peer() -> None:
    assert published_models.NAMES == published_peers.NAMES
    assert len(published_models.NAMES) >= 14
