"""Against Megatron-Core's own GPTModel with the same weights, on CPU, in float32."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_all_close, assert_close, gradients
from small_models import config
from torch import Tensor

from specc.runtime import ColumnParallelLinear, RowParallelLinear
from specc.templates import (
    MLP,
    GPTModel,
    GPTModelSubmodules,
    IdentityOp,
    LayerNorm,
    MLPSubmodules,
    ModuleSpec,
    RMSNorm,
    SelfAttention,
    SelfAttentionSubmodules,
    TransformerBlock,
    TransformerBlockSubmodules,
    TransformerConfig,
    TransformerLayer,
    TransformerLayerSubmodules,
)

ORACLE = Path(__file__).with_name("megatron_oracle.py")

ROPE = {"position_embedding_type": "rope"}
LLAMA = {"normalization": "RMSNorm", "num_query_groups": 2, "activation": "swiglu"} | ROPE

CASES: dict[str, dict[str, Any]] = {
    "gpt": {"add_bias_linear": True, "untie_embeddings_and_output_weights": False},
    "llama": LLAMA,
    "qkv bias": LLAMA | {"add_qkv_bias": True},
    "qk norm": LLAMA | {"qk_layernorm": True, "kv_channels": 12},
    "gate": LLAMA | {"attention_output_gate": True},
    "geglu": {"activation": "geglu"},
    "squared relu": {"activation": "squared_relu"},
    "rope percent": ROPE | {"rotary_percent": 0.5, "rotary_base": 500},
    "rope interleaved": ROPE | {"rotary_interleaved": True},
    "rope llama3": ROPE
    | {
        "rope_scaling": "llama3",
        "rope_scaling_factor": 4.0,
        "rope_scaling_original_max_position_embeddings": 8192,
    },
    "window": ROPE | {"window_size": 4, "window_attn_skip_freq": 2},  # there (3, 0)
    "window pattern": ROPE | {"window_size": 4, "window_attn_skip_freq": (0, 1)},
    "sinks": ROPE | {"softmax_type": "learnable"},
    "off by one": ROPE | {"softmax_type": "off-by-one"},
    "softmax scale": ROPE | {"softmax_scale": 0.05},
}


@pytest.fixture(scope="module")
def megatron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("megatron") / "results.pt"
    done = subprocess.run([sys.executable, str(ORACLE), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = torch.load(out)
    return results


def megatron_spec(config: TransformerConfig) -> ModuleSpec:
    """In Megatron's dialect, as its own get_gpt_layer_local_spec writes it."""
    norm = RMSNorm if config.normalization == "RMSNorm" else LayerNorm
    head_norm = norm if config.qk_layernorm else None
    layer = ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=norm,
            self_attention=ModuleSpec(
                module=SelfAttention,
                params={"attn_mask_type": "causal"},
                submodules=SelfAttentionSubmodules(
                    linear_qkv=ColumnParallelLinear,
                    linear_proj=RowParallelLinear,
                    q_layernorm=head_norm,
                    k_layernorm=head_norm,
                ),
            ),
            pre_mlp_layernorm=norm,
            mlp=ModuleSpec(
                module=MLP,
                submodules=MLPSubmodules(
                    linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear
                ),
            ),
        ),
    )
    block = TransformerBlockSubmodules(layer_specs=[layer] * config.num_layers, layer_norm=norm)
    return ModuleSpec(
        module=GPTModel,
        params={"config": config},
        submodules=GPTModelSubmodules(
            decoder=ModuleSpec(module=TransformerBlock, submodules=block)
        ),
    )


def to_ours(theirs: dict[str, Tensor], options: TransformerConfig) -> dict[str, Tensor]:
    ours = {}
    for name, tensor in theirs.items():
        name = name.replace("core_attention.softmax_offset", "softmax_offset")
        if "linear_fc1" in name and options.gated_linear_unit:  # there [gate; up]
            tensor = torch.stack(tensor.chunk(2), 1).flatten(0, 1)
        ours[name] = tensor
    return ours


def test_both_sides_have_the_same_cases(megatron: dict[str, Any]) -> None:
    assert sorted(megatron) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_gradients(name: str, megatron: dict[str, Any]) -> None:
    theirs = megatron[name]
    options = config(**CASES[name], ffn_hidden_size=48)
    model = megatron_spec(options).build_module()
    weights = to_ours(theirs["weights"], options)
    if not options.untie_embeddings_and_output_weights:
        weights["output_layer.weight"] = weights["embedding.word_embeddings.weight"]
    model.load_state_dict(weights)
    assert_close(model(theirs["ids"]), theirs["logits"], "logits")
    loss = model(theirs["ids"], theirs["labels"])
    assert_close(loss, theirs["loss"], "loss")
    loss.sum().backward()
    assert_all_close(gradients(model), to_ours(theirs["gradients"], options))


def test_absent_norms_are_identities_as_there() -> None:
    spec = megatron_spec(config())
    spec.submodules.decoder.submodules.layer_norm = IdentityOp
    for layer in spec.submodules.decoder.submodules.layer_specs[:1]:
        layer.submodules = TransformerLayerSubmodules(
            self_attention=layer.submodules.self_attention, mlp=layer.submodules.mlp
        )
    model = spec.build_module()
    assert not [name for name in model.state_dict() if "norm" in name]
