"""Every option of the templates, against a plain model in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from closeness import assert_all_close, assert_close, gradients, scatter
from moe_routers import ROUTERS
from plain_decoder import logits, loss
from small_models import config, gpt_spec, tokens

ROPE = {"position_embedding_type": "rope"}
GROUPED = {"num_query_groups": 2}
LLAMA3 = {
    "rope_scaling": "llama3",
    "rope_scaling_factor": 4.0,
    "rope_scaling_original_max_position_embeddings": 8,
}
YARN = {
    "rope_scaling": "yarn",
    "rope_scaling_factor": 4.0,
    "rope_scaling_original_max_position_embeddings": 64,
    "rotary_base": 100.0,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no positions": {"position_embedding_type": "none"},
    "rope": ROPE,
    "rope base": ROPE | {"rotary_base": 500.0},
    "rope percent": ROPE | {"rotary_percent": 0.5},
    "rope interleaved": ROPE | {"rotary_interleaved": True},
    "rope percent interleaved": ROPE | {"rotary_percent": 0.5, "rotary_interleaved": True},
    "rope linear": ROPE | {"rope_scaling": "linear", "rope_scaling_factor": 3.0},
    "rope llama3": ROPE | LLAMA3,
    "rope llama3 factors": ROPE
    | LLAMA3
    | {"rope_scaling_low_freq_factor": 0.5, "rope_scaling_high_freq_factor": 2.0},
    "rope yarn": ROPE | YARN,
    "rope yarn numbers": ROPE
    | YARN
    | {
        "yarn_beta_fast": 8.0,
        "yarn_beta_slow": 2.0,
        "yarn_mscale": 0.7,
        "yarn_mscale_all_dim": 0.4,
        "yarn_truncate": False,
    },
    "groups": GROUPED,
    "one group": {"num_query_groups": 1},
    "groups rope": GROUPED | ROPE,
    "head dim": {"kv_channels": 12} | GROUPED | ROPE,
    "ffn size": {"ffn_hidden_size": 40},
    "biases": {"add_bias_linear": True},
    "qkv bias": {"add_qkv_bias": True} | GROUPED,
    # Rotated, since a bias of unrotated keys shifts all scores of a query: its gradient is zero.
    "qk layer norm": {"qk_layernorm": True} | GROUPED | ROPE,
    "qk rms norm": {"qk_layernorm": True, "normalization": "RMSNorm"} | ROPE,
    "rms norm": {"normalization": "RMSNorm"},
    "epsilon": {"layernorm_epsilon": 0.1},
    "zero centred": {"layernorm_zero_centered_gamma": True},
    "zero centred rms": {"layernorm_zero_centered_gamma": True, "normalization": "RMSNorm"},
    "window": {"window_size": 3},
    "window every second": {"window_size": 3, "window_attn_skip_freq": 2},
    "window pattern": {"window_size": 4, "window_attn_skip_freq": (0, 1)},
    "soft cap": {"attn_logit_softcapping": 0.5},
    "softmax scale": {"softmax_scale": 0.05},
    "sinks": {"softmax_type": "learnable"} | GROUPED,
    "off by one": {"softmax_type": "off-by-one"},
    "sinks, window, cap": {
        "softmax_type": "learnable",
        "window_size": 3,
        "attn_logit_softcapping": 0.5,
    },
    "gate": {"attention_output_gate": True},
    "gate groups": {"attention_output_gate": True, "add_qkv_bias": True} | GROUPED | ROPE,
    "gelu tanh": {"activation": "gelu_tanh"},
    "swiglu": {"activation": "swiglu", "add_bias_linear": True},
    "geglu": {"activation": "geglu"},
    "geglu tanh": {"activation": "geglu_tanh"},
    "squared relu": {"activation": "squared_relu"},
    "quick geglu": {"activation": "quick_geglu"},
    "quick geglu of gpt-oss": {
        "activation": "quick_geglu",
        "activation_func_clamp_value": 0.2,
        "glu_linear_offset": 1.0,
        "add_bias_linear": True,
    },
    "norms without bias": {"layernorm_bias": False},
    "bias of the output projection": {"attention_output_bias": True},
    "biases of the MLP": {"mlp_bias": True},
    "biases but those": {
        "add_bias_linear": True,
        "mlp_bias": False,
        "attention_output_bias": False,
    },
    "base of windows": ROPE
    | {"rotary_base_local": 50.0, "window_size": 5, "window_attn_skip_freq": (1, 0)},
    "base of windows, scaled": ROPE
    | LLAMA3
    | {"rotary_base_local": 50.0, "window_size": 5, "window_attn_skip_freq": 2},
    "clipped": {"clip_qkv": 0.3} | GROUPED,
    "side by side": {"parallel_attention_mlp": True},
    "side by side, one norm": {"parallel_attention_mlp": True, "parallel_shared_layernorm": True},
    "residual multiplier": {"residual_multiplier": 0.3},
    "embedding multiplier": {"embedding_multiplier": 3.0} | ROPE,
    "logits multiplier": {"logits_multiplier": 0.3},
    "soft cap of logits": {"final_logit_softcapping": 0.5},
    "bias of the output layer": {"output_layer_bias": True},
    "tied": {"untie_embeddings_and_output_weights": False},
    "init std": {"init_method_std": 0.1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_logits_loss_and_gradients_are_the_reference_s(name: str) -> None:
    options = config(**OPTIONS[name])
    model = gpt_spec(options).build_module()
    scatter(model)
    text = tokens()
    ids, labels = text[:, :-1], text[:, 1:].clone()
    labels[0, :3] = -100
    weights = {n: p.detach().double().requires_grad_() for n, p in model.named_parameters()}

    assert_close(model(ids), logits(weights, options, ids), "logits")
    ours, theirs = model(ids, labels), loss(weights, options, ids, labels)
    assert_close(ours, theirs, "loss")
    assert (ours[0, :3] == 0).all()
    ours.sum().backward()
    theirs.sum().backward()
    expected = {n: w.grad for n, w in weights.items() if w.grad is not None}
    assert_all_close(gradients(model), expected)


def test_every_option_and_number_of_the_config_is_exercised() -> None:
    from specc.templates import LAUNCH_FIELDS, TransformerConfig

    exercised = {name for options in OPTIONS.values() for name in options}
    exercised |= {"attention_dropout", "hidden_dropout", "embedding_dropout"}  # below
    exercised |= {"num_layers", "hidden_size", "num_attention_heads", "vocab_size"}
    exercised |= {"max_position_embeddings"}
    # Of experts: test_moe_megatron.py, test_router_options.py, and the two that say which layers.
    exercised |= {name for router in ROUTERS.values() for name in router}
    exercised |= {"num_moe_experts", "moe_ffn_hidden_size"}
    exercised |= {"moe_router_dtype", "moe_input_jitter_eps", "moe_router_bias_update_rate"}
    exercised |= {"moe_layer_freq", "moe_token_drop_policy"}
    # test_mla_huggingface.py and test_mtp.py.
    exercised |= {"multi_latent_attention", "q_lora_rank", "kv_lora_rank", "v_head_dim"}
    exercised |= {"qk_head_dim", "qk_pos_emb_head_dim", "latent_layernorm_epsilon"}
    exercised |= {"mtp_num_layers", "mtp_loss_scaling_factor"}
    # test_mixers_huggingface.py, and whole models: tests/huggingface/test_hf_parity.py.
    exercised |= {n for n in TransformerConfig.__dataclass_fields__ if n.startswith("mamba_")}
    exercised |= {n for n in TransformerConfig.__dataclass_fields__ if n.startswith("linear_")}
    exercised |= {"hybrid_layer_pattern"}
    fields = {n for n in TransformerConfig.__dataclass_fields__ if not n.startswith("_")}
    assert fields - LAUNCH_FIELDS - exercised == set()


def test_initial_values_follow_their_laws() -> None:
    options = config(hidden_size=64, add_bias_linear=True, init_method_std=0.5)
    model = gpt_spec(options).build_module()
    values = dict(model.named_parameters())
    layer = "decoder.layers.1."
    qkv = values[layer + "self_attention.linear_qkv.weight"]
    assert qkv.std().item() == pytest.approx(0.5, 0.1)
    for name in ("self_attention.linear_proj", "mlp.linear_fc2"):  # 2 layers: a root of 2 * 2
        assert values[layer + name + ".weight"].std().item() == pytest.approx(0.25, 0.1)
        assert (values[layer + name + ".bias"] == 0).all()
    assert (values[layer + "input_layernorm.weight"] == 1).all()


def test_zero_centred_norms_start_at_zero() -> None:
    model = gpt_spec(config(layernorm_zero_centered_gamma=True)).build_module()
    assert (model.decoder.final_layernorm.weight == 0).all()


def test_the_seed_decides_the_values_and_torch_s_generator_does_not() -> None:
    spec = gpt_spec(config(softmax_type="learnable"))
    torch.manual_seed(1)
    first = spec.build_module(seed=3).state_dict()
    torch.manual_seed(2)
    again, other = spec.build_module(seed=3).state_dict(), spec.build_module(seed=4).state_dict()
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not torch.equal(
        first["embedding.word_embeddings.weight"], other["embedding.word_embeddings.weight"]
    )


def test_attention_dropout_acts_in_training_only() -> None:
    plain = gpt_spec(config()).build_module()
    model = gpt_spec(config(attention_dropout=0.5)).build_module()
    scatter(plain)
    scatter(model)
    ids = tokens()[:, :-1]
    torch.manual_seed(0)
    assert not torch.allclose(model(ids), plain(ids))
    assert torch.equal(model.eval()(ids), plain.eval()(ids))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_of_the_embedding_may_differ_from_the_branches(rate: float) -> None:
    from specc.runtime import Dropout

    model = gpt_spec(config(hidden_dropout=0.5, embedding_dropout=rate)).build_module()
    rates = [m.p for m in model.modules() if isinstance(m, Dropout)]
    assert rates == ([rate] if rate else []) + [0.5] * 4


def test_hidden_dropout_acts_on_the_embedding_and_both_branches() -> None:
    from specc.runtime import Dropout, set_dropout_step

    plain = gpt_spec(config()).build_module()
    model = gpt_spec(config(hidden_dropout=0.5)).build_module()
    ids = tokens()[:, :-1]
    names = [name for name, module in model.named_modules() if isinstance(module, Dropout)]
    assert names == [
        "embedding.embedding_dropout",
        "decoder.layers.0.self_attention_dropout",
        "decoder.layers.0.mlp_dropout",
        "decoder.layers.1.self_attention_dropout",
        "decoder.layers.1.mlp_dropout",
    ]
    assert torch.equal(model.eval()(ids), plain(ids))
    model.train()
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    first = model(ids)
    assert torch.equal(first, model(ids))
    set_dropout_step(model, seed=0, step=1, first_sequence=0)
    assert not torch.equal(first, model(ids))
    kept = []
    model.decoder.layers[0].mlp_dropout.register_forward_hook(
        lambda _, inputs, output: kept.append((output != 0).float().mean().item())
    )
    model(ids)
    assert kept[0] == pytest.approx(0.5, abs=0.1)


def test_an_attention_mask_bars_what_it_marks() -> None:
    model = gpt_spec(config()).build_module()
    scatter(model)
    ids = tokens()[:, :-1]
    x = model.embedding(ids)
    alone = model.decoder(x[:, 4:])
    barred = torch.zeros(1, 1, 12, 12, dtype=torch.bool)
    barred[..., :4] = True  # no place sees the first four
    assert_close(model.decoder(x, attention_mask=barred)[:, 4:], alone, "masked")


def test_learned_positions_can_be_numbered_by_the_caller() -> None:
    embedding = gpt_spec(config()).build_module().embedding
    ids = tokens()[:, :-1]
    table, words = embedding.position_embeddings.weight, embedding.word_embeddings.weight
    places = torch.stack((torch.arange(12).flip(0), torch.arange(12) // 2))
    assert torch.equal(embedding(ids, position_ids=places), words[ids] + table[places])


@pytest.mark.parametrize(
    ("kind", "asked", "has"),
    [
        (None, None, True),
        ("learned_absolute", None, True),
        ("rope", None, False),
        ("none", None, False),
        ("rope", True, True),
        (None, False, False),
    ],
)
def test_learned_positions_exist_where_config_or_params_say_so(
    kind: str | None, asked: bool | None, has: bool
) -> None:
    spec = gpt_spec(config(position_embedding_type=kind))
    spec.submodules["embedding"].params["use_position_embeddings"] = asked
    model = spec.build_module()
    assert ("embedding.position_embeddings.weight" in model.state_dict()) is has
