"""Hugging Face's DeepSeek with the same weights, in float32: latent attention and experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from closeness import assert_all_close, assert_close, gradients, scatter
from small_models import config, tokens
from torch import Tensor

from specc.runtime import parameter_table
from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    MLASelfAttention,
    ModuleSpec,
    MoELayer,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
    "pad_token_id": None,
}
OURS: dict[str, Any] = {
    "num_layers": 3,
    "ffn_hidden_size": 48,
    "position_embedding_type": "rope",
    "rotary_interleaved": True,
    "layernorm_epsilon": 1e-6,
    "activation": "swiglu",
    "normalization": "RMSNorm",
    "max_position_embeddings": 64,
    "multi_latent_attention": True,
    "kv_lora_rank": 12,
    "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 4,
    "v_head_dim": 6,
    "qk_layernorm": True,
}
EXPERTS: dict[str, Any] = {
    "num_moe_experts": 8,
    "moe_layer_freq": (0, 1, 1),
    "moe_ffn_hidden_size": 24,
    "moe_router_topk": 4,
    "moe_shared_expert_intermediate_size": 24,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 1.0,
}
OUR_YARN: dict[str, Any] = {
    "rope_scaling": "yarn",
    "rope_scaling_factor": 4.0,
    "rope_scaling_original_max_position_embeddings": 16,
    "yarn_mscale": 0.707,
    "yarn_mscale_all_dim": 1.0,
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Hugging Face draws initial values: by chance an expert would be met by no token."""
    torch.manual_seed(0)


@pytest.mark.parametrize("q_lora_rank", [None, 16])
@pytest.mark.parametrize("interleaved", [False, True])
def test_latent_attention_alone(q_lora_rank: int | None, interleaved: bool) -> None:
    theirs = transformers.DeepseekV3Config(
        **SIZES | {"first_k_dense_replace": 3},
        q_lora_rank=q_lora_rank,
        rope_interleave=interleaved,
        rope_scaling=YARN,
    )
    ours = config(**OURS | {"rotary_interleaved": interleaved}, **OUR_YARN, q_lora_rank=q_lora_rank)
    compare(transformers.DeepseekV3ForCausalLM(theirs), spec(ours))


def test_deepseek_v3() -> None:
    theirs = transformers.DeepseekV3ForCausalLM(
        transformers.DeepseekV3Config(
            **SIZES, q_lora_rank=16, routed_scaling_factor=2.5, norm_topk_prob=True
        )
    )
    ours = config(
        **OURS,
        **EXPERTS,
        q_lora_rank=16,
        moe_router_score_function="sigmoid",
        moe_router_num_groups=4,
        moe_router_group_topk=2,
        moe_router_topk_scaling_factor=2.5,
        moe_router_enable_expert_bias=True,
    )
    for layer in theirs.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias.uniform_(-0.05, 0.05)
    compare(theirs, spec(ours))


def spec(ours: TransformerConfig) -> ModuleSpec:
    def layer(mlp: type) -> ModuleSpec:
        children = {"self_attention": ModuleSpec(MLASelfAttention), "mlp": ModuleSpec(mlp)}
        return ModuleSpec(TransformerLayer, submodules=children)

    layers = {"layer_spec": layer(MLP)}
    if ours.num_moe_experts is not None:
        layers["moe_layer_spec"] = layer(MoELayer)
    return ModuleSpec(
        GPTModel,
        params={"config": ours},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params=layers),
        },
    )


def compare(theirs: transformers.PreTrainedModel, spec: ModuleSpec) -> None:
    """Logits, loss and every gradient to 1e-5 of the largest: float32 sums in another order."""
    scatter(theirs, scale=0.1)
    ours = spec.build_module()
    options = spec.params["config"]
    with torch.no_grad():
        for name, tensor in renamed(theirs.state_dict(), options).items():
            ours.get_parameter(name).copy_(tensor)
    assert not set(dict(ours.named_parameters())) - set(renamed(theirs.state_dict(), options))
    given = tokens()
    ids, labels = given[:, :-1], given[:, 1:]
    expected = theirs(input_ids=ids).logits
    logits = ours(input_ids=ids)
    assert_close(logits, expected, "logits")
    loss = ours(input_ids=ids, labels=labels).mean()
    expected_loss = F.cross_entropy(expected.flatten(0, 1), labels.flatten())
    assert_close(loss, expected_loss, "loss")
    loss.backward()
    expected_loss.backward()
    assert_all_close(gradients(ours), renamed(gradients(theirs), options))


def renamed(theirs: Mapping[str, Tensor], options: TransformerConfig) -> dict[str, Tensor]:
    """Their weights, or gradients, under our names and in our rows' order."""
    ours = {}
    for name, our_name in (
        ("model.embed_tokens", "embedding.word_embeddings"),
        ("model.norm", "decoder.final_layernorm"),
        ("lm_head", "output_layer"),
    ):
        ours[f"{our_name}.weight"] = theirs[f"{name}.weight"]
    for i in range(options.num_layers):
        layer, into = f"model.layers.{i}.", f"decoder.layers.{i}."
        for name, our_name in (
            ("input_layernorm", "input_layernorm"),
            ("post_attention_layernorm", "pre_mlp_layernorm"),
            ("self_attn.q_proj", "self_attention.linear_q_proj"),
            ("self_attn.q_a_proj", "self_attention.linear_q_down_proj"),
            ("self_attn.q_a_layernorm", "self_attention.q_layernorm"),
            ("self_attn.q_b_proj", "self_attention.linear_q_up_proj"),
            ("self_attn.kv_a_proj_with_mqa", "self_attention.linear_kv_down_proj"),
            ("self_attn.kv_a_layernorm", "self_attention.kv_layernorm"),
            ("self_attn.kv_b_proj", "self_attention.linear_kv_up_proj"),
            ("self_attn.o_proj", "self_attention.linear_proj"),
            ("mlp.down_proj", "mlp.linear_fc2"),
            ("mlp.gate", "mlp.router"),
            ("mlp.shared_experts.down_proj", "mlp.shared_experts.linear_fc2"),
        ):
            if f"{layer}{name}.weight" in theirs:
                ours[f"{into}{our_name}.weight"] = theirs[f"{layer}{name}.weight"]
        for name, our_name in (("mlp.", "mlp."), ("mlp.shared_experts.",) * 2):
            if f"{layer}{name}up_proj.weight" in theirs:
                ours[f"{into}{our_name}linear_fc1.weight"] = gated(theirs, f"{layer}{name}")
        if f"{layer}mlp.gate.e_score_correction_bias" in theirs:
            ours[f"{into}mlp.router.expert_bias"] = theirs[
                f"{layer}mlp.gate.e_score_correction_bias"
            ]
        experts = [f"{layer}mlp.experts.{e}." for e in range(options.num_moe_experts or 0)]
        if experts and f"{experts[0]}up_proj.weight" in theirs:
            ours[f"{into}mlp.experts.linear_fc1.weight"] = torch.stack(
                [gated(theirs, expert) for expert in experts]
            )
            ours[f"{into}mlp.experts.linear_fc2.weight"] = torch.stack(
                [theirs[f"{expert}down_proj.weight"] for expert in experts]
            )
    return ours


def gated(theirs: Mapping[str, Tensor], name: str) -> Tensor:
    """Rows that alternate gate, up."""
    return torch.stack(
        [theirs[f"{name}gate_proj.weight"], theirs[f"{name}up_proj.weight"]], 1
    ).flatten(0, 1)


def test_down_projections_are_whole_on_every_rank_and_the_rest_is_cut() -> None:
    table = parameter_table(spec(config(**OURS, q_lora_rank=16)).build_module())
    dims = {
        name.split("self_attention.")[1]: record.dim
        for name, record in table.items()
        if "layers.0.self_attention" in name
    }
    assert dims == {
        "linear_q_down_proj.weight": None,
        "q_layernorm.weight": None,
        "linear_q_up_proj.weight": 0,
        "linear_kv_down_proj.weight": None,
        "kv_layernorm.weight": None,
        "linear_kv_up_proj.weight": 0,
        "linear_proj.weight": 1,
    }
