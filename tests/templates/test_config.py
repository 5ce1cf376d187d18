"""The configs: defaults, what is remembered, and every mistake."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
import torch
from small_models import config

from specc.templates import LAUNCH_FIELDS, ConfigError, ModelParallelConfig, TransformerConfig

LLAMA3 = {
    "rope_scaling": "llama3",
    "rope_scaling_factor": 4.0,
    "rope_scaling_original_max_position_embeddings": 64,
}
YARN = LLAMA3 | {"rope_scaling": "yarn"}

BAD: list[tuple[dict[str, Any], str, str, str]] = [
    ({"num_layer": 3}, "SP151", "`num_layer`", "did you mean `num_layers`?"),
    ({"activation_func": None}, "SP151", "`activation_func`", "say `activation` here"),
    ({"hidden_size": 2.5}, "SP153", "`hidden_size` is 2.5", "a whole number"),
    ({"hidden_size": True}, "SP153", "`hidden_size` is True", "a whole number"),
    ({"qk_layernorm": 1}, "SP153", "`qk_layernorm` is 1", "True or False"),
    ({"activation": None}, "SP153", "`activation` is None", "a string"),
    ({"kv_channels": "12"}, "SP153", "`kv_channels` is '12'", "a whole number or None"),
    ({"window_attn_skip_freq": ("1",)}, "SP153", "`window_attn_skip_freq`", "a tuple of whole"),
    ({"activation": "swigl"}, "SP154", "`activation` is 'swigl'", "did you mean `swiglu`?"),
    ({"normalization": "rms"}, "SP154", "`normalization`", "LayerNorm"),
    ({"position_embedding_type": "rotary"}, "SP154", "`position_embedding_type`", "rope"),
    ({"softmax_type": "learned"}, "SP154", "`softmax_type`", "did you mean `learnable`?"),
    ({"rope_scaling": "llama"}, "SP154", "`rope_scaling`", "did you mean `llama3`?"),
    ({"num_layers": 0}, "SP155", "`num_layers` is 0", "above 0"),
    ({"layernorm_epsilon": -1e-5}, "SP155", "`layernorm_epsilon`", "above 0"),
    ({"attn_logit_softcapping": 0.0}, "SP155", "`attn_logit_softcapping`", "above 0"),
    ({"hidden_dropout": 1.0}, "SP155", "`hidden_dropout` is 1.0", "[0, 1)"),
    ({"rotary_percent": 1.5}, "SP155", "`rotary_percent` is 1.5", "(0, 1]"),
    ({"hidden_size": 30}, "SP156", "`hidden_size`=30", "kv_channels"),
    ({"num_query_groups": 3}, "SP157", "`num_query_groups`=3", "the same number"),
    (
        {"position_embedding_type": "rope", "kv_channels": 7},
        "SP158",
        "7 of 7 channels",
        "even",
    ),
    (
        {"rope_scaling": "linear"},
        "SP159",
        "needs `rope_scaling_factor`",
        "pass `rope_scaling_factor`",
    ),
    ({"yarn_mscale": 0.5}, "SP160", "`yarn_mscale` is set", "set `rope_scaling` to 'yarn'"),
    (
        LLAMA3 | {"rope_scaling_high_freq_factor": 1.0},
        "SP161",
        "`rope_scaling_high_freq_factor`=1.0",
        "the larger",
    ),
    (YARN | {"yarn_beta_fast": 0.5}, "SP161", "`yarn_beta_fast`=0.5", "the larger"),
    ({"window_attn_skip_freq": 2}, "SP162", "`window_size` is None", "set `window_size`"),
    (
        {"window_size": 4, "window_attn_skip_freq": (1, 0, 1)},
        "SP163",
        "3 entries and `num_layers` is 2",
        "one entry for each layer",
    ),
    (
        {"window_size": 4, "window_attn_skip_freq": (1, 2)},
        "SP163",
        "(1, 2)",
        "one entry for each layer",
    ),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case[1]}-{'-'.join(case[0])}")
def test_a_bad_config_names_its_field(case: tuple[dict[str, Any], str, str, str]) -> None:
    fields, code, message, help = case
    with pytest.raises(ConfigError) as caught:
        config(**fields)
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert found, caught.value
    assert message in found[0].message
    assert help in (found[0].help or "")
    assert found[0].span is not None
    assert found[0].span.file.endswith("small_models.py")  # where the config is made


def test_missing_fields_come_together() -> None:
    with pytest.raises(ConfigError, match=r"SP152.*`num_layers`, `num_attention_heads`"):
        TransformerConfig(hidden_size=8, vocab_size=3, max_position_embeddings=4)


def test_fields_go_by_name() -> None:
    with pytest.raises(ConfigError, match="SP150"):
        TransformerConfig(2, 8)


def test_all_mistakes_come_together_and_are_a_value_error() -> None:
    with pytest.raises(ValueError) as caught:
        config(num_layers=0, activation="swish", hidden_dropout=2.0)
    assert isinstance(caught.value, ConfigError)
    assert len(caught.value.diagnostics) == 3


def test_a_config_is_frozen_hashable_and_compares_by_value() -> None:
    options = config(window_size=3, window_attn_skip_freq=[1, 0])
    assert options.window_attn_skip_freq == (1, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.num_layers = 3  # type: ignore[misc]
    assert options == config(window_size=3, window_attn_skip_freq=(1, 0))
    assert hash(options) == hash(config(window_size=3, window_attn_skip_freq=(1, 0)))
    assert options != config()


def test_none_stays_and_what_follows_has_another_name() -> None:
    options = config()
    assert options.num_query_groups is None and options.query_groups == 4
    assert options.kv_channels is None and options.head_dim == 8
    assert options.ffn_hidden_size is None and options.ffn_size == 128
    assert options.rotary_percent is None and options.rotary_dim == 8
    given = config(num_query_groups=2, kv_channels=12, ffn_hidden_size=40, rotary_percent=0.5)
    assert (given.query_groups, given.head_dim, given.ffn_size, given.rotary_dim) == (2, 12, 40, 6)


def test_whole_numbers_for_a_float_become_floats() -> None:
    options = config(rotary_base=500000, softmax_scale=1)
    assert type(options.rotary_base) is float and type(options.softmax_scale) is float


def test_the_fields_that_the_user_set_are_remembered() -> None:
    asked = {"num_layers", "hidden_size", "num_attention_heads", "vocab_size"}
    asked |= {"max_position_embeddings"}
    assert config()._set_fields == asked
    # Passing a default is setting it.
    assert config(activation="gelu")._set_fields == asked | {"activation"}


def test_replace_keeps_what_was_set_and_adds_what_changed() -> None:
    first = config(activation="gelu")
    second = dataclasses.replace(first, num_query_groups=2, num_layers=3)
    assert second._set_fields == first._set_fields | {"num_query_groups"}
    assert copy.deepcopy(second)._set_fields == second._set_fields
    assert pickle.loads(pickle.dumps(second))._set_fields == second._set_fields


def test_what_was_set_is_no_part_of_a_config_s_value() -> None:
    assert config(activation="gelu") == config()
    assert "_set_fields" not in repr(config())


def test_a_user_s_config_class_remembers_too() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WithDepth(TransformerConfig):
        depth_scale: float = 1.0

    sizes = {
        "num_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 5,
        "max_position_embeddings": 4,
    }
    assert "depth_scale" in WithDepth(**sizes, depth_scale=2)._set_fields
    assert WithDepth(**sizes, depth_scale=2).depth_scale == 2.0
    with pytest.raises(ConfigError, match="did you mean `depth_scale`"):
        WithDepth(**sizes, depth_scal=2)


def test_launch_fields_are_fields_with_defaults() -> None:
    fields = {f.name for f in dataclasses.fields(TransformerConfig)}
    assert fields >= LAUNCH_FIELDS
    options = config(tensor_model_parallel_size=8, bf16=True, params_dtype=torch.bfloat16)
    assert options.tensor_model_parallel_size == 8


def test_both_config_classes_have_the_same_fields() -> None:
    names = [
        [f.name for f in dataclasses.fields(c)] for c in (ModelParallelConfig, TransformerConfig)
    ]
    assert names[0] == names[1]
