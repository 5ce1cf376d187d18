"""Configs of each family, drawn at random from what its class allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from small_families import LLAMA3

Draw = st.SearchStrategy[dict[str, Any]]

_SCALINGS = st.sampled_from(
    [
        None,
        {"rope_type": "linear", "factor": 2.5},
        LLAMA3,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "beta_fast": 20.0,
            "beta_slow": 2.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.4,
            "original_max_position_embeddings": 16,
        },
    ]
)


def some(**fields: st.SearchStrategy[Any]) -> Draw:
    """Any of the fields, or none: what is left out has the class's default, or the small size."""
    return st.fixed_dictionaries({}, optional=fields)


# Windows of one or two places leave gradients of q's and k's norms that nearly cancel out.
_SIZES: dict[str, Any] = {
    "num_hidden_layers": st.integers(2, 4),
    "num_key_value_heads": st.sampled_from([1, 2, 4]),
    "intermediate_size": st.sampled_from([8, 40, 64]),
    "vocab_size": st.sampled_from([61, 64, 97]),
    "tie_word_embeddings": st.booleans(),
    "initializer_range": st.sampled_from([0.01, 0.05]),
}
_ROPE = {"rope_theta": st.sampled_from([100.0, 5e5]), "rope_scaling": _SCALINGS}
_RMS = {"rms_norm_eps": st.sampled_from([1e-6, 1e-3])}
_LAYER = {"layer_norm_eps": st.sampled_from([1e-6, 1e-3])}
_WINDOW = {"sliding_window": st.sampled_from([None, 4, 100])}
_PART = {"partial_rotary_factor": st.sampled_from([0.25, 0.5, 1.0])}
_HEAD = {"head_dim": st.sampled_from([8, 20])}
_BIAS = {"attention_bias": st.booleans()}
_EXPERTS = {
    "num_experts": st.sampled_from([4, 5]),
    "num_experts_per_tok": st.integers(2, 4),
    "norm_topk_prob": st.booleans(),
}
_SPARSE = {
    "decoder_sparse_step": st.sampled_from([1, 2]),
    "mlp_only_layers": st.sampled_from([[], [0]]),
    "moe_intermediate_size": st.sampled_from([8, 24]),
}
_QWEN_WINDOW = {
    "use_sliding_window": st.booleans(),
    "sliding_window": st.sampled_from([4, 7]),
    "max_window_layers": st.integers(0, 4),
}
_GPT: dict[str, Any] = {
    "n_layer": st.integers(1, 3),
    "n_inner": st.sampled_from([None, 40]),
    "vocab_size": st.sampled_from([61, 97]),
    "activation_function": st.sampled_from(["gelu", "gelu_new"]),
    "layer_norm_epsilon": st.sampled_from([1e-6, 1e-3]),
}
_GELU = st.sampled_from(["gelu", "gelu_pytorch_tanh"])

FIELDS: dict[str, Draw] = {
    "llama": some(**_SIZES, **_ROPE, **_RMS, **_HEAD, **_BIAS, mlp_bias=st.booleans()),
    "mistral": some(**_SIZES, **_RMS, **_HEAD, **_WINDOW),
    "mixtral": some(
        **_SIZES,
        **_RMS,
        **_WINDOW,
        num_local_experts=st.sampled_from([3, 6]),
        num_experts_per_tok=st.integers(2, 3),
    ),
    "qwen2": some(**_SIZES, **_ROPE, **_RMS, **_QWEN_WINDOW),
    "qwen2_moe": some(
        **_SIZES, **_RMS, **_EXPERTS, **_SPARSE, **_QWEN_WINDOW, qkv_bias=st.booleans()
    ),
    "qwen3": some(**_SIZES, **_ROPE, **_RMS, **_HEAD, **_QWEN_WINDOW),
    "qwen3_moe": some(**_SIZES, **_RMS, **_HEAD, **_EXPERTS, **_SPARSE),
    "gpt2": some(**_GPT, tie_word_embeddings=st.booleans()),
    "gptj": some(**_GPT, rotary_dim=st.sampled_from([2, 4, 8])),
    "gpt_neox": some(
        num_hidden_layers=st.integers(1, 3),
        intermediate_size=st.sampled_from([40, 128]),
        rotary_pct=st.sampled_from([0.25, 0.5, 1.0]),
        rotary_emb_base=st.sampled_from([100, 10000]),
        use_parallel_residual=st.booleans(),
        attention_bias=st.booleans(),
        tie_word_embeddings=st.booleans(),
        hidden_act=st.sampled_from(["gelu", "gelu_fast", "gelu_new"]),
    ),
    "seed_oss": some(
        **_SIZES,
        **_ROPE,
        **_RMS,
        **_HEAD,
        **_BIAS,
        attention_out_bias=st.booleans(),
        mlp_bias=st.booleans(),
    ),
    "granite": some(
        **_SIZES,
        **_ROPE,
        **_RMS,
        **_BIAS,
        mlp_bias=st.booleans(),
        attention_multiplier=st.sampled_from([0.1, 1.0]),
        embedding_multiplier=st.sampled_from([1.0, 5.0]),
        residual_multiplier=st.sampled_from([0.2, 1.0]),
        logits_scaling=st.sampled_from([1.0, 8.0]),
    ),
    "gemma": some(**_SIZES, **_RMS, **_HEAD, **_BIAS),
    "gemma2": some(
        **_SIZES,
        **_RMS,
        **_HEAD,
        **_BIAS,
        sliding_window=st.sampled_from([4, 7]),
        query_pre_attn_scalar=st.sampled_from([4, 144]),
        attn_logit_softcapping=st.sampled_from([None, 1.0]),
        final_logit_softcapping=st.sampled_from([None, 2.0]),
        hidden_activation=_GELU,
    ),
    "gemma3_text": some(
        **_SIZES,
        **_ROPE,
        **_RMS,
        **_HEAD,
        sliding_window=st.sampled_from([4, 7]),
        sliding_window_pattern=st.integers(1, 4),
        rope_local_base_freq=st.sampled_from([50.0, 10000.0]),
    ),
    "phi": some(**_SIZES, **_ROPE, **_LAYER, **_PART, hidden_act=_GELU),
    "phi3": some(**_SIZES, **_RMS, **_WINDOW, **_PART),
    "olmo2": some(**_SIZES, **_RMS, **_BIAS, rope_theta=st.sampled_from([100.0, 5e5])),
    "olmoe": some(**_SIZES, **_RMS, **_EXPERTS, clip_qkv=st.sampled_from([None, 0.3])),
    "cohere": some(**_SIZES, **_ROPE, **_LAYER, **_BIAS, logit_scale=st.sampled_from([0.1, 2.0])),
    "starcoder2": some(
        **_SIZES,
        **_ROPE,
        **_WINDOW,
        use_bias=st.booleans(),
        hidden_act=_GELU,
        norm_epsilon=st.sampled_from([1e-6, 1e-3]),
    ),
    "glm": some(**_SIZES, **_RMS, **_BIAS, **_PART),
    "glm4": some(**_SIZES, **_RMS, **_BIAS, **_PART),
    "stablelm": some(
        **_SIZES,
        **_ROPE,
        **_LAYER,
        **_PART,
        use_qkv_bias=st.booleans(),
        use_parallel_residual=st.booleans(),
    ),
    "gpt_oss": some(
        **_SIZES,
        **_RMS,
        num_local_experts=st.sampled_from([3, 6]),
        num_experts_per_tok=st.integers(2, 3),
        sliding_window=st.sampled_from([4, 7]),
    ),
    "glm4_moe": some(
        **_SIZES,
        **_ROPE,
        **_RMS,
        **_BIAS,
        use_qk_norm=st.booleans(),
        n_routed_experts=st.sampled_from([4, 8]),
        n_shared_experts=st.integers(1, 2),
        first_k_dense_replace=st.integers(0, 1),
        routed_scaling_factor=st.sampled_from([1.0, 2.5]),
    ),
    "deepseek_v2": some(
        num_hidden_layers=st.integers(2, 4),
        q_lora_rank=st.sampled_from([None, 12]),
        rope_theta=st.sampled_from([100.0, 5e5]),
        n_shared_experts=st.integers(1, 2),
        routed_scaling_factor=st.sampled_from([1.0, 2.5]),
        rms_norm_eps=st.sampled_from([1e-6, 1e-3]),
        kv_lora_rank=st.sampled_from([8, 20]),
    ),
    "deepseek_v3": some(
        num_hidden_layers=st.integers(2, 4),
        q_lora_rank=st.sampled_from([None, 12]),
        rope_theta=st.sampled_from([100.0, 5e5]),
        rope_interleave=st.booleans(),
        first_k_dense_replace=st.integers(0, 1),
        routed_scaling_factor=st.sampled_from([1.0, 2.5]),
        qk_nope_head_dim=st.sampled_from([4, 12]),
        v_head_dim=st.sampled_from([4, 12]),
    ),
    "qwen3_next": some(
        rope_theta=st.sampled_from([100.0, 5e5]),
        partial_rotary_factor=st.sampled_from([0.25, 0.5]),
        linear_num_value_heads=st.sampled_from([2, 4, 6]),
        linear_key_head_dim=st.sampled_from([4, 8]),
        linear_conv_kernel_dim=st.integers(2, 4),
        num_experts_per_tok=st.integers(2, 4),
        norm_topk_prob=st.booleans(),
        mlp_only_layers=st.sampled_from([[], [0, 1]]),
        tie_word_embeddings=st.booleans(),
    ),
    "bamba": some(
        num_hidden_layers=st.integers(2, 3),
        attn_layer_indices=st.sampled_from([[0], [1]]),
        mamba_n_heads=st.sampled_from([4, 16]),
        mamba_d_state=st.sampled_from([4, 9]),
        rms_norm_eps=st.sampled_from([1e-6, 1e-3]),
        tie_word_embeddings=st.booleans(),
    ),
    "falcon": some(
        num_hidden_layers=st.integers(1, 3),
        new_decoder_architecture=st.booleans(),
        bias=st.booleans(),
        num_kv_heads=st.sampled_from([1, 2, 4]),
        tie_word_embeddings=st.booleans(),
    ),
}
