"""A small random model of each family, made by transformers itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

Model = Callable[[], nn.Module]

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
# The balancing loss joins our graph always, theirs where router logits are returned: left out.
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}
QWEN_EXPERTS = EXPERTS | {"moe_intermediate_size": 24, "num_experts": 4}

LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_theta": 1000.0, "rope_scaling": LLAMA3}),
    "mistral": ("Mistral", {"sliding_window": 5, "head_dim": 12}),
    "mixtral": ("Mixtral", EXPERTS | {"num_local_experts": 4}),
    "qwen2": (
        "Qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
        },
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        QWEN_EXPERTS | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    ),
    "qwen3": ("Qwen3", {"head_dim": 12}),
    "qwen3_moe": ("Qwen3Moe", QWEN_EXPERTS | {"norm_topk_prob": True, "decoder_sparse_step": 1}),
    "gpt2": (
        "GPT2",
        {
            "vocab_size": 61,
            "n_positions": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": None,
            "eos_token_id": None,
        },
    ),
    "gptj": (
        "GPTJ",
        {
            "vocab_size": 61,
            "n_positions": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 4,
            "bos_token_id": None,
            "eos_token_id": None,
        },
    ),
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.25}),
    "gpt_neox serial": ("GPTNeoX", {"use_parallel_residual": False, "hidden_act": "gelu_fast"}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "seed_oss": (
        "SeedOss",
        {"head_dim": 12, "attention_dropout": 0.0, "residual_dropout": 0.0},
    ),
    "granite": (
        "Granite",
        {
            "attention_multiplier": 0.3,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 4.0,
        },
    ),
    "gemma": ("Gemma", {"head_dim": 12}),
    "gemma2": (
        "Gemma2",
        {
            "head_dim": 12,
            "sliding_window": 5,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 0.5,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3_text": (
        "Gemma3",
        {
            "head_dim": 12,
            "sliding_window": 5,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 20,
            "rope_local_base_freq": 100.0,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
    ),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {"sliding_window": 7}),
    "olmo2": ("Olmo2", {}),
    "olmoe": ("Olmoe", EXPERTS | {"num_experts": 4, "clip_qkv": 0.7}),
    "cohere": ("Cohere", {"logit_scale": 0.25}),
    "starcoder2": ("Starcoder2", {"sliding_window": 6}),
    "glm": ("Glm", {"head_dim": 8}),
    "glm4": ("Glm4", {"head_dim": 8}),
    "stablelm": ("StableLm", {"use_qkv_bias": True}),
    "gpt_oss": (
        "GptOss",
        EXPERTS
        | {
            "num_local_experts": 4,
            "head_dim": 12,
            "sliding_window": 5,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "glm4_moe": (
        "Glm4Moe",
        {
            "moe_intermediate_size": 24,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "deepseek_v2": ("DeepseekV2", LATENT | {"q_lora_rank": None, "aux_loss_alpha": 0.0}),
    "deepseek_v3": (
        "DeepseekV3",
        LATENT
        | {
            "q_lora_rank": 16,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 4,
            "rms_norm_eps": 1e-4,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "mscale": 0.707,
                "mscale_all_dim": 1.0,
            },
        },
    ),
    "qwen3_next": (
        "Qwen3Next",
        QWEN_EXPERTS
        | {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "shared_expert_intermediate_size": 40,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_key_head_dim": 6,
            "linear_value_head_dim": 5,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "bamba": (
        "Bamba",
        {
            "attn_layer_indices": [1],
            "mamba_n_heads": 8,
            "mamba_d_state": 6,
        },
    ),
    "falcon": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon multi-query": ("Falcon", {}),
    "stablelm parallel": ("StableLm", {"use_parallel_residual": True}),
}
OWN_SIZES = {"gpt2", "gptj"}
ONE_GROUP = {"falcon multi-query", "bamba"}  # of keys or of states, which tp cannot cut


def make(family: str, **changed: Any) -> nn.Module:
    """A model with values of one seed, in float32, with eager attention."""
    name, fields = FAMILIES[family]
    fields = ({} if family in OWN_SIZES else SIZES) | fields | changed
    text = "Text" if name == "Gemma3" else ""
    config_class = getattr(transformers, f"{name}{text}Config")
    if name in ("GPTNeoX", "Falcon"):
        del fields["num_key_value_heads"]
    if name == "Falcon":
        fields["ffn_hidden_size"] = fields.pop("intermediate_size")
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    model_class = getattr(transformers, f"{name}{head}")
    torch.manual_seed(0)
    model: nn.Module = model_class(config_class(**fields, attn_implementation="eager"))
    return model.eval()
