"""Whole hybrid models of Hugging Face with the same weights, in float32: Bamba, Qwen3-Next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from closeness import assert_all_close, assert_close, gradients, scatter
from small_models import config, tokens
from torch import Tensor

from specc.templates import (
    MLP,
    AttentionLayer,
    GatedDeltaNet,
    GatedDeltaNetLayer,
    HybridModel,
    HybridStack,
    MambaLayer,
    MambaMixer,
    MLPLayer,
    ModuleSpec,
    MoELayer,
    SelfAttention,
    TransformerConfig,
)

Renamed = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
    "pad_token_id": None,
}
OURS: dict[str, Any] = {
    "num_query_groups": 2,
    "ffn_hidden_size": 48,
    "max_position_embeddings": 64,
    "position_embedding_type": "rope",
    "activation": "swiglu",
    "normalization": "RMSNorm",
}


def spec(ours: TransformerConfig) -> ModuleSpec:
    """A model with a layer for every symbol; norms are left to the config."""
    layers = {
        "mamba_layer": ModuleSpec(MambaLayer, submodules={"mixer": MambaMixer}),
        "gdn_layer": ModuleSpec(GatedDeltaNetLayer, submodules={"mixer": GatedDeltaNet}),
        "attention_layer": ModuleSpec(AttentionLayer, submodules={"self_attention": SelfAttention}),
        "mlp_layer": ModuleSpec(MLPLayer, submodules={"mlp": MLP}),
        "moe_layer": ModuleSpec(MLPLayer, submodules={"mlp": MoELayer}),
    }
    decoder = ModuleSpec(HybridStack, submodules=layers)
    return ModuleSpec(HybridModel, params={"config": ours}, submodules={"decoder": decoder})


def bamba() -> tuple[transformers.PreTrainedModel, ModuleSpec, Renamed]:
    """Three of their layers, the second with attention: each two of ours."""
    theirs = transformers.BambaForCausalLM(
        transformers.BambaConfig(
            **SIZES,
            num_hidden_layers=3,
            attn_layer_indices=[1],
            mamba_n_heads=4,
            mamba_n_groups=1,  # its norm is over all groups
            mamba_d_state=8,
            mamba_chunk_size=16,
        )
    )
    ours = config(
        **OURS,
        num_layers=6,
        hybrid_layer_pattern="M-*-M-",
        rotary_percent=0.5,
        mamba_num_heads=4,
        mamba_head_dim=16,
        mamba_num_groups=1,
        mamba_state_dim=8,
    )

    def renamed(of: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = ends(of, "model.final_layernorm")
        for i in range(3):
            layer, first, second = halves(i)
            if i == 1:
                found |= {
                    f"{first}input_layernorm.weight": of[f"{layer}input_layernorm.weight"],
                    **attention(of, layer, first),
                }
            else:
                found[f"{first}norm.weight"] = of[f"{layer}input_layernorm.weight"]
                for name in ("in_proj.weight", "conv1d.weight", "conv1d.bias", "dt_bias", "A_log"):
                    found[f"{first}mixer.{name}"] = of[f"{layer}mamba.{name}"]
                for name in ("D", "norm.weight", "out_proj.weight"):
                    found[f"{first}mixer.{name}"] = of[f"{layer}mamba.{name}"]
            found |= {
                f"{second}pre_mlp_layernorm.weight": of[f"{layer}pre_ff_layernorm.weight"],
                f"{second}mlp.linear_fc1.weight": gated(of, f"{layer}feed_forward."),
                f"{second}mlp.linear_fc2.weight": of[f"{layer}feed_forward.down_proj.weight"],
            }
        return found

    return theirs, spec(ours), renamed


def qwen3_next() -> tuple[transformers.PreTrainedModel, ModuleSpec, Renamed]:
    """Two of their layers, the second with attention, both with experts."""
    linear = {
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 5,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    theirs = transformers.Qwen3NextForCausalLM(
        transformers.Qwen3NextConfig(
            **SIZES,
            **linear,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
            rms_norm_eps=1e-5,
        )
    )
    ours = config(
        **OURS | {"ffn_hidden_size": None},
        **linear,
        num_layers=4,
        hybrid_layer_pattern="GE*E",
        kv_channels=16,
        rotary_percent=0.25,
        layernorm_zero_centered_gamma=True,
        qk_layernorm=True,
        attention_output_gate=True,
        num_moe_experts=4,
        moe_ffn_hidden_size=24,
        moe_shared_expert_intermediate_size=40,
        moe_shared_expert_gate=True,
    )

    def renamed(of: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = ends(of, "model.norm")
        for i in range(2):
            layer, first, second = halves(i)
            if i == 1:
                found |= {
                    f"{first}input_layernorm.weight": of[f"{layer}input_layernorm.weight"],
                    **attention(of, layer, first, with_gate=True),
                }
                for name in ("q", "k"):
                    found[f"{first}self_attention.{name}_layernorm.weight"] = of[
                        f"{layer}self_attn.{name}_norm.weight"
                    ]
            else:
                theirs, into = f"{layer}linear_attn.", f"{first}mixer."
                found[f"{first}norm.weight"] = of[f"{layer}input_layernorm.weight"]
                rows = of[f"{theirs}in_proj_qkvz.weight"], of[f"{theirs}in_proj_ba.weight"]
                found[f"{into}in_proj.weight"] = by_group(*rows)
                parts = of[f"{theirs}conv1d.weight"].split((12, 12, 20))
                found[f"{into}conv1d.weight"] = by_group(*parts)
                found[f"{into}out_norm.weight"] = of[f"{theirs}norm.weight"]
                for name in ("dt_bias", "A_log", "out_proj.weight"):
                    found[f"{into}{name}"] = of[f"{theirs}{name}"]
            mlp, into = f"{layer}mlp.", f"{second}mlp."
            experts = [f"{mlp}experts.{e}." for e in range(4)]
            down = [of[f"{expert}down_proj.weight"] for expert in experts]
            norm = of[f"{layer}post_attention_layernorm.weight"]
            found |= {
                f"{second}pre_mlp_layernorm.weight": norm,
                f"{into}router.weight": of[f"{mlp}gate.weight"],
                f"{into}experts.linear_fc1.weight": torch.stack([gated(of, e) for e in experts]),
                f"{into}experts.linear_fc2.weight": torch.stack(down),
                f"{into}shared_experts.gate_weight": of[f"{mlp}shared_expert_gate.weight"],
                f"{into}shared_experts.linear_fc1.weight": gated(of, f"{mlp}shared_expert."),
                f"{into}shared_experts.linear_fc2.weight": of[
                    f"{mlp}shared_expert.down_proj.weight"
                ],
            }
        return found

    return theirs, spec(ours), renamed


def ends(of: Mapping[str, Tensor], norm: str) -> dict[str, Tensor]:
    return {
        "embedding.word_embeddings.weight": of["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": of[f"{norm}.weight"],
        "output_layer.weight": of["lm_head.weight"],
    }


def halves(i: int) -> tuple[str, str, str]:
    """Their layer, and the two of ours that it is."""
    return f"model.layers.{i}.", f"decoder.layers.{2 * i}.", f"decoder.layers.{2 * i + 1}."


def attention(
    of: Mapping[str, Tensor], layer: str, into: str, *, with_gate: bool = False
) -> dict[str, Tensor]:
    """Rows go group by group, [query heads | key | value]; gates stand beside their queries."""
    q, k, v = (of[f"{layer}self_attn.{n}_proj.weight"] for n in "qkv")
    if with_gate:
        q = gates_behind(q)
    return {
        f"{into}self_attention.linear_qkv.weight": by_group(q, k, v),
        f"{into}self_attention.linear_proj.weight": of[f"{layer}self_attn.o_proj.weight"],
    }


def gates_behind(q: Tensor) -> Tensor:
    """Their rows go head by head, [query | gate]; ours group by group, [queries | gates]."""
    return q.unflatten(0, (2, 2, 2, 16)).transpose(1, 2).flatten(0, 3)


def by_group(*parts: Tensor) -> Tensor:
    return torch.cat([part.unflatten(0, (2, -1)) for part in parts], 1).flatten(0, 1)


def gated(of: Mapping[str, Tensor], name: str) -> Tensor:
    """Rows that alternate gate, up."""
    rows = [of[f"{name}gate_proj.weight"], of[f"{name}up_proj.weight"]]
    return torch.stack(rows, 1).flatten(0, 1)


@pytest.mark.parametrize("family", [bamba, qwen3_next])
def test_a_model(family: Callable[..., Any]) -> None:
    """Logits, loss and every gradient to 1e-5 of the largest: float32 sums in another order."""
    torch.manual_seed(0)
    theirs, of, renamed = family()
    scatter(theirs, scale=0.1)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("A_log"):  # where states decay fast their differences of sums are off
                parameter.uniform_(-1.0, 0.5)
    ours = of.build_module()
    with torch.no_grad():
        for name, tensor in renamed(theirs.state_dict()).items():
            ours.get_parameter(name).copy_(tensor)
    given = tokens()
    ids, labels = given[:, :-1], given[:, 1:]
    expected = theirs(input_ids=ids).logits
    assert_close(ours(input_ids=ids), expected, "logits")
    loss = ours(input_ids=ids, labels=labels).mean()
    expected_loss = F.cross_entropy(expected.flatten(0, 1), labels.flatten())
    assert_close(loss, expected_loss, "loss")
    loss.backward()
    expected_loss.backward()
    assert_all_close(gradients(ours), renamed(gradients(theirs)))
