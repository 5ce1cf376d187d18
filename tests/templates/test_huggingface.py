"""Against Hugging Face's models with the same weights, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from closeness import assert_all_close, assert_close, gradients, scatter
from small_models import config, gpt_spec, tokens
from torch import Tensor, nn

from specc.runtime import Mesh, Positions, RowParallelLinear
from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    MegatronModule,
    ModuleSpec,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    build_module,
    norm_slot,
    required_slot,
)

Weights = Mapping[str, Tensor]

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
    "pad_token_id": None,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
OURS: dict[str, Any] = {
    "ffn_hidden_size": 48,
    "num_query_groups": 2,
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "layernorm_epsilon": 1e-6,
    "activation": "swiglu",
    "max_position_embeddings": 64,
}


def test_llama_with_llama3_scaling() -> None:
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **GROUPED,
            rope_theta=1000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        )
    )
    ours = config(
        **OURS,
        rotary_base=1000.0,
        rope_scaling="llama3",
        rope_scaling_factor=8.0,
        rope_scaling_original_max_position_embeddings=16,
    )
    compare(theirs, gpt_spec(ours), like_llama)


def test_llama_with_linear_scaling() -> None:
    scaling = {"rope_type": "linear", "factor": 3.0}
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**GROUPED, rope_scaling=scaling)
    )
    ours = config(**OURS, rope_scaling="linear", rope_scaling_factor=3.0)
    compare(theirs, gpt_spec(ours), like_llama)


def test_llama_with_yarn() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**GROUPED, rope_scaling=scaling)
    )
    ours = config(
        **OURS,
        rope_scaling="yarn",
        rope_scaling_factor=4.0,
        rope_scaling_original_max_position_embeddings=16,
    )
    compare(theirs, gpt_spec(ours), like_llama)


def test_qwen2_has_biases_on_q_k_and_v_and_ties_its_embedding() -> None:
    theirs = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**GROUPED, tie_word_embeddings=True)
    )
    ours = config(**OURS, add_qkv_bias=True, untie_embeddings_and_output_weights=False)
    compare(theirs, gpt_spec(ours), like_llama)


def test_qwen3_norms_q_and_k_and_has_wide_heads() -> None:
    theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=12))
    ours = config(**OURS, qk_layernorm=True, kv_channels=12)
    compare(theirs, gpt_spec(ours), like_llama)


def test_gpt2() -> None:
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=61,
            n_positions=16,
            n_embd=32,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="eager",
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    ours = config(
        add_bias_linear=True, activation="gelu_tanh", untie_embeddings_and_output_weights=False
    )
    compare(theirs, gpt_spec(ours), like_gpt2)


def test_gpt_neox_rotates_a_part_of_each_head() -> None:
    theirs = transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            **SIZES,
            rotary_pct=0.25,
            use_parallel_residual=False,
            hidden_act="gelu",
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    ours = config(
        ffn_hidden_size=48,
        position_embedding_type="rope",
        rotary_percent=0.25,
        add_bias_linear=True,
        max_position_embeddings=64,
    )
    compare(theirs, gpt_spec(ours), like_neox)


def test_gemma2_by_a_layer_of_the_user_s() -> None:
    """Soft caps, alternating windows, zero-centred norms; norms after each half by own classes."""
    theirs = transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            **GROUPED,
            head_dim=12,
            sliding_window=5,
            query_pre_attn_scalar=20,
            attn_logit_softcapping=0.5,
            final_logit_softcapping=None,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    ours = config(
        **(OURS | {"activation": "geglu_tanh"}),
        kv_channels=12,
        layernorm_zero_centered_gamma=True,
        window_size=5,
        window_attn_skip_freq=2,
        softmax_scale=20**-0.5,
        attn_logit_softcapping=0.5,
        untie_embeddings_and_output_weights=False,
    )
    layer = ModuleSpec(
        SandwichLayer,
        submodules={"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)},
    )
    spec = ModuleSpec(
        GPTModel,
        params={"config": ours},
        submodules={
            "embedding": ModuleSpec(ScaledEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": layer}),
        },
    )
    compare(theirs, spec, like_gemma2)


def test_gpt_oss_attention_has_sinks_and_windows() -> None:
    """With a dense SwiGLU in place of its experts."""
    theirs = transformers.GptOssForCausalLM(
        transformers.GptOssConfig(
            **GROUPED,
            head_dim=12,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=5,
            rope_theta=1000.0,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "original_max_position_embeddings": 16,
                "truncate": False,
            },
        )
    )
    for layer in theirs.model.layers:
        layer.mlp = DenseInPlaceOfExperts(32, 48)
    with torch.no_grad():  # left as they come from memory where nothing is loaded
        for layer in theirs.model.layers:
            layer.self_attn.sinks.zero_()
    ours = config(
        **OURS,
        rotary_base=1000.0,
        kv_channels=12,
        add_qkv_bias=True,
        softmax_type="learnable",
        window_size=5,
        window_attn_skip_freq=(1, 0),
        rope_scaling="yarn",
        rope_scaling_factor=4.0,
        rope_scaling_original_max_position_embeddings=16,
        yarn_truncate=False,
    )
    spec = gpt_spec(ours)
    attention = spec.submodules["decoder"].params["layer_spec"].submodules["self_attention"]
    attention.submodules = {"linear_proj": ModuleSpec(BiasedRow)}
    compare(theirs, spec, like_llama)


def compare(theirs: nn.Module, spec: ModuleSpec, translate: Any) -> None:
    """Logits, and the gradient of the loss by every parameter, after the same weights."""
    scatter(theirs)
    ours = spec.build_module()
    options = spec.params["config"]
    ours.load_state_dict(translate(dict(theirs.named_parameters()), options))
    text = tokens()
    ids, labels = text[:, :-1], text[:, 1:]
    logits = theirs(ids).logits
    assert_close(ours(ids), logits, "logits")
    ours(ids, labels).sum().backward()
    F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").backward()
    assert_all_close(gradients(ours), unique(translate(gradients(theirs), options)))


def unique(tensors: Weights) -> dict[str, Tensor]:
    """Without the second name of a tied table."""
    tied = "embedding.word_embeddings.weight"
    return {
        name: tensor
        for name, tensor in tensors.items()
        if name != "output_layer.weight" or tensor is not tensors[tied]
    }


# --- their names to ours


def rows_by_group(q: Tensor, k: Tensor, v: Tensor, options: TransformerConfig) -> Tensor:
    groups, d = options.query_groups, options.head_dim
    parts = [t.unflatten(0, (groups, -1, d)) for t in (q, k, v)]
    return torch.cat(parts, 1).flatten(0, 2)


def alternating(gate: Tensor, up: Tensor) -> Tensor:
    return torch.stack((gate, up), 1).flatten(0, 1)


def like_llama(theirs: Weights, options: TransformerConfig) -> dict[str, Tensor]:
    embedding = theirs["model.embed_tokens.weight"]
    ours = {
        "embedding.word_embeddings.weight": embedding,
        "decoder.final_layernorm.weight": theirs["model.norm.weight"],
        "output_layer.weight": theirs.get("lm_head.weight", embedding),
    }
    for i in range(options.num_layers):
        layer, into = f"model.layers.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            names = [f"{layer}self_attn.{which}_proj.{kind}" for which in "qkv"]
            if names[0] in theirs:
                rows = rows_by_group(*(theirs[n] for n in names), options)
                ours[f"{into}self_attention.linear_qkv.{kind}"] = rows
            if f"{layer}self_attn.o_proj.{kind}" in theirs:
                projection = theirs[f"{layer}self_attn.o_proj.{kind}"]
                ours[f"{into}self_attention.linear_proj.{kind}"] = projection
        for which in "qk":
            if f"{layer}self_attn.{which}_norm.weight" in theirs:
                weight = theirs[f"{layer}self_attn.{which}_norm.weight"]
                ours[f"{into}self_attention.{which}_layernorm.weight"] = weight
        if f"{layer}self_attn.sinks" in theirs:
            ours[f"{into}self_attention.softmax_offset"] = theirs[f"{layer}self_attn.sinks"]
        gate, up = theirs[f"{layer}mlp.gate_proj.weight"], theirs[f"{layer}mlp.up_proj.weight"]
        ours[f"{into}mlp.linear_fc1.weight"] = alternating(gate, up)
        ours[f"{into}mlp.linear_fc2.weight"] = theirs[f"{layer}mlp.down_proj.weight"]
        ours[f"{into}input_layernorm.weight"] = theirs[f"{layer}input_layernorm.weight"]
        pre_mlp = theirs[f"{layer}post_attention_layernorm.weight"]
        ours[f"{into}pre_mlp_layernorm.weight"] = pre_mlp
    return ours


def like_gemma2(theirs: Weights, options: TransformerConfig) -> dict[str, Tensor]:
    ours = like_llama(theirs, options)
    for i in range(options.num_layers):
        layer, into = f"model.layers.{i}.", f"decoder.layers.{i}."
        for name, their_name in (
            ("post_attention_layernorm", "post_attention_layernorm"),
            ("pre_mlp_layernorm", "pre_feedforward_layernorm"),
            ("post_mlp_layernorm", "post_feedforward_layernorm"),
        ):
            ours[f"{into}{name}.weight"] = theirs[f"{layer}{their_name}.weight"]
    return ours


def like_gpt2(theirs: Weights, options: TransformerConfig) -> dict[str, Tensor]:
    embedding = theirs["transformer.wte.weight"]
    ours = {
        "embedding.word_embeddings.weight": embedding,
        "embedding.position_embeddings.weight": theirs["transformer.wpe.weight"],
        "output_layer.weight": embedding,
    }
    for kind in ("weight", "bias"):
        ours[f"decoder.final_layernorm.{kind}"] = theirs[f"transformer.ln_f.{kind}"]
    for i in range(options.num_layers):
        layer, into = f"transformer.h.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            ours[f"{into}input_layernorm.{kind}"] = theirs[f"{layer}ln_1.{kind}"]
            ours[f"{into}pre_mlp_layernorm.{kind}"] = theirs[f"{layer}ln_2.{kind}"]
            for name, their_name in (
                ("self_attention.linear_qkv", "attn.c_attn"),
                ("self_attention.linear_proj", "attn.c_proj"),
                ("mlp.linear_fc1", "mlp.c_fc"),
                ("mlp.linear_fc2", "mlp.c_proj"),
            ):
                tensor = theirs[f"{layer}{their_name}.{kind}"]
                tensor = tensor.T.contiguous() if kind == "weight" else tensor  # Conv1D
                if name.endswith("qkv"):
                    tensor = rows_by_group(*tensor.chunk(3), options)
                ours[f"{into}{name}.{kind}"] = tensor
    return ours


def like_neox(theirs: Weights, options: TransformerConfig) -> dict[str, Tensor]:
    ours = {
        "embedding.word_embeddings.weight": theirs["gpt_neox.embed_in.weight"],
        "output_layer.weight": theirs["embed_out.weight"],
    }
    for kind in ("weight", "bias"):
        ours[f"decoder.final_layernorm.{kind}"] = theirs[f"gpt_neox.final_layer_norm.{kind}"]
        for i in range(options.num_layers):
            layer, into = f"gpt_neox.layers.{i}.", f"decoder.layers.{i}."
            for name, their_name in (
                ("input_layernorm", "input_layernorm"),
                ("self_attention.linear_qkv", "attention.query_key_value"),  # by head, as ours
                ("self_attention.linear_proj", "attention.dense"),
                ("pre_mlp_layernorm", "post_attention_layernorm"),
                ("mlp.linear_fc1", "mlp.dense_h_to_4h"),
                ("mlp.linear_fc2", "mlp.dense_4h_to_h"),
            ):
                ours[f"{into}{name}.{kind}"] = theirs[f"{layer}{their_name}.{kind}"]
    return ours


# --- what a user adds


class ScaledEmbedding(LanguageModelEmbedding):
    """Gemma's: the embedding times the root of its width."""

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        return super().forward(input_ids, position_ids, positions) * self.config.hidden_size**0.5


@dataclass
class SandwichLayerSubmodules:
    self_attention: Any = required_slot()
    mlp: Any = required_slot()
    input_layernorm: Any = norm_slot()
    post_attention_layernorm: Any = norm_slot()
    pre_mlp_layernorm: Any = norm_slot()
    post_mlp_layernorm: Any = norm_slot()


class SandwichLayer(MegatronModule):
    """Norms before and after attention and MLP."""

    def __init__(
        self, config: TransformerConfig, submodules: SandwichLayerSubmodules, layer_number: int
    ) -> None:
        super().__init__(config)
        self.self_attention = build_module(
            submodules.self_attention, config, layer_number=layer_number
        )
        self.mlp = build_module(submodules.mlp, config)
        self.input_layernorm = build_module(submodules.input_layernorm)
        self.post_attention_layernorm = build_module(submodules.post_attention_layernorm)
        self.pre_mlp_layernorm = build_module(submodules.pre_mlp_layernorm)
        self.post_mlp_layernorm = build_module(submodules.post_mlp_layernorm)

    def forward(self, x: Tensor, positions: Positions, rotary: Any, attention_mask: Any) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions, rotary, attention_mask)
        x = x + self.post_attention_layernorm(y)
        return x + self.post_mlp_layernorm(self.mlp(self.pre_mlp_layernorm(x)))


class BiasedRow(RowParallelLinear):
    """A projection with a bias, whatever the config says of biases."""

    def __init__(
        self, in_features: int, out_features: int, mesh: Mesh, *, bias: bool, init_std: float
    ) -> None:
        super().__init__(in_features, out_features, mesh, bias=True, init_std=init_std)


class DenseInPlaceOfExperts(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, ffn, bias=False)
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)), None
