"""The configs that a spec is written with: frozen, checked when they are made."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any

import torch

from specc.runtime import LinearScaling, Llama3Scaling, YarnScaling

from .config_combinations import combination_mistakes
from .diagnostic import Diagnostic, Span, SpecError, call_span, suggestion
from .findings import with_article
from .spans import narrowed

LAUNCH_FIELDS = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "moe_token_dispatcher_type",
        "sequence_parallel",
        "params_dtype",
        "bf16",
        "fp16",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
        "deterministic_mode",
    }
)
"""Fields that Megatron keeps with the model and that are chosen when a page is launched."""

TRAINER_FIELDS = frozenset({"max_position_embeddings"})
"""Fields that a page states for its trainer, whether or not its classes read them."""

POSITION_EMBEDDINGS = ("learned_absolute", "rope", "none")
ROPE_SCALINGS = ("linear", "llama3", "yarn")
ACTIVATIONS = (
    "gelu", "gelu_tanh", "swiglu", "geglu", "geglu_tanh", "quick_geglu", "squared_relu"
)  # fmt: skip
NORMALIZATIONS = ("LayerNorm", "RMSNorm")
SOFTMAX_TYPES = ("vanilla", "off-by-one", "learnable")
SCORE_FUNCTIONS = ("softmax", "sigmoid")
ROUTER_DTYPES = ("fp32", "fp64")
LOAD_BALANCING_TYPES = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
DROP_POLICIES = ("probs", "position")
TOKEN_DISPATCHERS = ("alltoall", "allgather")

_OPTIONS: dict[str, tuple[str, ...]] = {
    "position_embedding_type": POSITION_EMBEDDINGS,
    "rope_scaling": ROPE_SCALINGS,
    "activation": ACTIVATIONS,
    "normalization": NORMALIZATIONS,
    "softmax_type": SOFTMAX_TYPES,
    "moe_router_score_function": SCORE_FUNCTIONS,
    "moe_router_dtype": ROUTER_DTYPES,
    "moe_router_load_balancing_type": LOAD_BALANCING_TYPES,
    "moe_token_drop_policy": DROP_POLICIES,
    "moe_token_dispatcher_type": TOKEN_DISPATCHERS,
}
_PROBABILITIES = ("attention_dropout", "hidden_dropout", "embedding_dropout")
_AT_LEAST_ZERO = (
    "init_method_std",
    *_PROBABILITIES,
    "yarn_mscale_all_dim",
    "moe_aux_loss_coeff",
    "moe_z_loss_coeff",
    "moe_router_bias_update_rate",
    "glu_linear_offset",
)


_RENAMED = {  # Megatron's own names, where they differ
    "activation_func": "activation",
    "gated_linear_unit": 'activation="swiglu"',
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
    "max_sequence_length": "max_position_embeddings",
    "seq_length": "max_position_embeddings",
    "rotary_scaling_factor": "rope_scaling_factor",
}


class ConfigError(SpecError, ValueError):
    """A config has a value or a combination that no model can be built from."""


def _note(default: Any, note: str) -> Any:
    """A field whose line on a page ends in a comment."""
    return field(default=default, metadata={"note": note})


class _ConfigType(type):
    """Makes configs: refuses unknown and missing fields, and records which ones the user set."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
        earlier, span = kwargs.pop("_set_fields", None), kwargs.pop("_span", None)
        found = []
        if args:
            found.append(
                _mistake(
                    "SP150",
                    f"`{cls.__name__}` takes its fields by name, and {len(args)} came without",
                    help=f"write {cls.__name__}(num_layers=..., hidden_size=..., ...)",
                )
            )
        known = sorted(n for n in fields if not n.startswith("_"))
        for name in sorted(kwargs.keys() - fields.keys()):
            found.append(
                _mistake(
                    "SP151",
                    f"`{cls.__name__}` has no field `{name}`",
                    help=_field_help(name, known),
                )
            )
        required = [n for n, f in fields.items() if _default(f) is dataclasses.MISSING]
        meant = {_meant(name, known) for name in kwargs.keys() - fields.keys()}
        if not args and (missing := [n for n in required if n not in kwargs.keys() | meant]):
            names = ", ".join(f"`{n}`" for n in missing)
            found.append(
                _mistake("SP152", f"`{cls.__name__}` needs {names}", help="pass a value for each")
            )
        if found:
            raise ConfigError(found)
        if earlier is None:
            chosen = frozenset(kwargs)
        else:  # dataclasses.replace passes every field, those that it leaves alone included
            chosen = earlier | {n for n, v in kwargs.items() if v != _default(fields[n])}
        if span is None and earlier is None:
            span = call_span(sys._getframe(1), _SKIPPED, width=len(cls.__name__))
        return super().__call__(**kwargs, _set_fields=chosen, _span=span)


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _meant(name: str, known: list[str]) -> str | None:
    """The field that an unknown name most likely stands for."""
    close = difflib.get_close_matches(name, known, n=1)
    return _RENAMED.get(name) or (close[0] if close else None)


def _field_help(name: str, known: list[str]) -> str:
    renamed = _RENAMED.get(name)
    return f"say `{renamed}` here" if renamed else suggestion(name, known, "it")


@dataclass(frozen=True, kw_only=True)
class ModelParallelConfig(metaclass=_ConfigType):
    """The numbers and options of a model.

    In Megatron-Core the fields of the parallel layout stand here and `TransformerConfig` adds the
    model's; many a text passes the model's fields to this class all the same. Since the layout is
    chosen at launch here (`LAUNCH_FIELDS` are accepted and decide nothing), the two classes have
    the same fields, and either may be used.

    None stays None: what follows from it is a property under another name (`head_dim`,
    `query_groups`, `ffn_size`, `rotary_dim`). Whole numbers given for a float field become floats.

    Different from Megatron-Core:

    - `hidden_dropout` and `attention_dropout` are 0.0 by default (there 0.1), `add_bias_linear` is
      False (there True);
    - `activation` names what there takes `activation_func`, `gated_linear_unit` and
      `bias_activation_fusion` together: gelu (exact), gelu_tanh, swiglu, geglu, geglu_tanh,
      quick_geglu, squared_relu; a gated first projection alternates gate and up rows;
    - `vocab_size`, `max_position_embeddings`, `position_embedding_type`, `rotary_base`,
      `rotary_percent` and `untie_embeddings_and_output_weights` (True by default) are fields; there
      they are arguments of GPTModel. `position_embedding_type` None means learned_absolute;
    - `rope_scaling` names a rule (linear, llama3, yarn) and its numbers are fields; there it is a
      flag for llama3 with fixed numbers, and YaRN is a position embedding type;
    - `window_size` is how many places back a place sees, itself included (there a pair
      (left, right), with left = window_size - 1);
    - `window_attn_skip_freq` has its meaning there: every n-th layer sees everything, or a tuple
      with 1 (window) or 0 (everything) for each layer;
    - `attn_logit_softcapping` does not exist there;
    - `rotary_percent` None means 1.0.

    Raises ConfigError with every mistake that is found, each naming its field.
    """

    # The size of the model.
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    max_position_embeddings: int = _note(
        dataclasses.MISSING, "the longest sequence that the trainer feeds"
    )
    num_query_groups: int | None = _note(None, "key/value heads; each serves a group of queries")
    kv_channels: int | None = _note(None, "channels of a head")
    ffn_hidden_size: int | None = None

    # Positions.
    position_embedding_type: str | None = None
    rotary_base: float = 10000.0
    rotary_base_local: float | None = None
    rotary_percent: float | None = _note(None, "the part of a head's channels that is rotated")
    rotary_interleaved: bool = False
    rope_scaling: str | None = None
    rope_scaling_factor: float = 1.0
    rope_scaling_low_freq_factor: float = 1.0
    rope_scaling_high_freq_factor: float = 4.0
    rope_scaling_original_max_position_embeddings: int = 8192
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_mscale: float = 1.0
    yarn_mscale_all_dim: float = 0.0
    yarn_truncate: bool = True

    # Layers.
    activation: str = "gelu"
    activation_func_clamp_value: float | None = None
    glu_linear_offset: float = 0.0
    normalization: str = "LayerNorm"
    layernorm_epsilon: float = 1e-5
    layernorm_zero_centered_gamma: bool = False
    layernorm_bias: bool = True
    add_bias_linear: bool = False
    mlp_bias: bool | None = None
    parallel_attention_mlp: bool = False
    parallel_shared_layernorm: bool = False
    residual_multiplier: float | None = None
    hidden_dropout: float = 0.0

    # Attention.
    add_qkv_bias: bool = False
    attention_output_bias: bool | None = None
    clip_qkv: float | None = None
    qk_layernorm: bool = False
    attention_dropout: float = 0.0
    attention_output_gate: bool = False
    attn_logit_softcapping: float | None = None
    softmax_scale: float | None = None
    softmax_type: str = "vanilla"
    window_size: int | None = _note(None, "places back that a place sees, itself included")
    window_attn_skip_freq: int | tuple[int, ...] | None = None

    # Experts.
    num_moe_experts: int | None = None
    moe_layer_freq: int | tuple[int, ...] = 1
    moe_ffn_hidden_size: int | None = None
    moe_router_topk: int = 2
    moe_router_score_function: str = "softmax"
    moe_router_pre_softmax: bool = False
    moe_router_topk_scaling_factor: float | None = None
    moe_router_dtype: str = "fp32"
    moe_router_num_groups: int | None = None
    moe_router_group_topk: int | None = None
    moe_router_load_balancing_type: str = "aux_loss"
    moe_aux_loss_coeff: float = 0.0
    moe_z_loss_coeff: float | None = None
    moe_router_enable_expert_bias: bool = False
    moe_router_bias_update_rate: float = 0.001
    moe_input_jitter_eps: float | None = None
    moe_expert_capacity_factor: float | None = None
    moe_pad_expert_input_to_capacity: bool = False
    moe_token_drop_policy: str = "probs"
    moe_apply_probs_on_input: bool = False
    moe_shared_expert_intermediate_size: int | None = None
    moe_shared_expert_gate: bool = False

    # Multi-latent attention.
    multi_latent_attention: bool = False
    q_lora_rank: int | None = None
    kv_lora_rank: int = 512
    qk_head_dim: int = 128
    qk_pos_emb_head_dim: int = 64
    v_head_dim: int = 128
    latent_layernorm_epsilon: float | None = None

    # Multi-token prediction.
    mtp_num_layers: int | None = None
    mtp_loss_scaling_factor: float = 0.1

    # Hybrid stacks.
    hybrid_layer_pattern: str | None = _note(None, "the layers, a symbol for each")
    mamba_state_dim: int = 128
    mamba_head_dim: int = 64
    mamba_num_groups: int = 8
    mamba_num_heads: int | None = None
    linear_conv_kernel_dim: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32

    # Embedding and logits.
    embedding_multiplier: float | None = None
    embedding_dropout: float | None = None
    logits_multiplier: float | None = None
    final_logit_softcapping: float | None = None
    output_layer_bias: bool = False

    # Weights.
    untie_embeddings_and_output_weights: bool = True
    init_method_std: float = 0.02

    # Chosen at launch.
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_pipeline_model_parallel_size: int | None = None
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    expert_tensor_parallel_size: int | None = None
    moe_token_dispatcher_type: str = "alltoall"
    sequence_parallel: bool = False
    params_dtype: torch.dtype | None = None
    bf16: bool = False
    fp16: bool = False
    recompute_granularity: str | None = None
    recompute_method: str | None = None
    recompute_num_layers: int | None = None
    recompute_modules: tuple[str, ...] | None = None
    deterministic_mode: bool = False

    # The fields that the user passed; `dataclasses.replace` hands it on, and adds to it.
    _set_fields: frozenset[str] = field(
        default=frozenset(), repr=False, compare=False, metadata={"hidden": True}
    )
    # The place that made it, for messages.
    _span: Span | None = field(default=None, repr=False, compare=False, metadata={"hidden": True})

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            elif type(value) is int and float in (hint, *typing.get_args(hint)):
                object.__setattr__(self, name, float(value))
        # A combination is judged where its values make sense by themselves.
        found = _value_mistakes(self) or [
            _mistake(code, message, help=help) for code, message, help in combination_mistakes(self)
        ]
        if found:
            raise ConfigError(found)

    @property
    def head_dim(self) -> int:
        if self.kv_channels is not None:
            return self.kv_channels
        return self.hidden_size // self.num_attention_heads

    @property
    def query_groups(self) -> int:
        """Key/value heads."""
        if self.num_query_groups is not None:
            return self.num_query_groups
        return self.num_attention_heads

    @property
    def ffn_size(self) -> int:
        if self.ffn_hidden_size is not None:
            return self.ffn_hidden_size
        return 4 * self.hidden_size

    @property
    def moe_ffn_size(self) -> int:
        """The width of an expert."""
        if self.moe_ffn_hidden_size is not None:
            return self.moe_ffn_hidden_size
        return self.ffn_size

    @property
    def shared_ffn_size(self) -> int:
        """The width of the shared experts together, 0 where there are none."""
        if self.moe_shared_expert_intermediate_size is not None:
            return self.moe_shared_expert_intermediate_size
        return 0

    def is_moe_layer(self, index: int) -> bool:
        """Whether the layer of this number, counted from 0, has experts."""
        if isinstance(self.moe_layer_freq, int):
            return index % self.moe_layer_freq == 0
        return self.moe_layer_freq[index] == 1

    @property
    def mamba_heads(self) -> int:
        """Mamba-2 heads: their channels are twice the hidden size where their number is not set."""
        if self.mamba_num_heads is not None:
            return self.mamba_num_heads
        return 2 * self.hidden_size // self.mamba_head_dim

    @property
    def rotary_dim(self) -> int:
        """The first channels of a head, which are rotated; of latent attention, their number."""
        if self.multi_latent_attention:
            return self.qk_pos_emb_head_dim
        if self.rotary_percent is not None:
            return int(self.head_dim * self.rotary_percent)
        return self.head_dim

    @property
    def rotary_scaling(self) -> LinearScaling | Llama3Scaling | YarnScaling | None:
        """How rotary positions reach further than `max_position_embeddings` was trained for."""
        if self.rope_scaling == "linear":
            return LinearScaling(self.rope_scaling_factor)
        if self.rope_scaling == "llama3":
            return Llama3Scaling(
                self.rope_scaling_factor,
                self.rope_scaling_low_freq_factor,
                self.rope_scaling_high_freq_factor,
                self.rope_scaling_original_max_position_embeddings,
            )
        if self.rope_scaling == "yarn":
            return YarnScaling(
                self.rope_scaling_factor,
                self.rope_scaling_original_max_position_embeddings,
                beta_fast=self.yarn_beta_fast,
                beta_slow=self.yarn_beta_slow,
                mscale=self.yarn_mscale,
                mscale_all_dim=self.yarn_mscale_all_dim,
                truncate=self.yarn_truncate,
            )
        return None

    @property
    def gated_linear_unit(self) -> bool:
        return self.activation in ("swiglu", "geglu", "geglu_tanh", "quick_geglu")

    @property
    def embedding_dropout_rate(self) -> float:
        if self.embedding_dropout is not None:
            return self.embedding_dropout
        return self.hidden_dropout

    @property
    def has_mlp_bias(self) -> bool:
        if self.mlp_bias is not None:
            return self.mlp_bias
        return self.add_bias_linear

    @property
    def has_attention_output_bias(self) -> bool:
        if self.attention_output_bias is not None:
            return self.attention_output_bias
        return self.add_bias_linear


class TransformerConfig(ModelParallelConfig):
    """The numbers and options of a model; see `ModelParallelConfig` for its fields."""


_SKIPPED = frozenset({__file__, dataclasses.__file__})


def _mistake(code: str, message: str, *, help: str, note: str | None = None) -> Diagnostic:
    span = call_span(sys._getframe(1), _SKIPPED, width=len("TransformerConfig"))
    return Diagnostic(code, message, "config", narrowed(span, message), note=note, help=help)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if not f.name.startswith("_")}


def _value_mistakes(config: ModelParallelConfig) -> list[Diagnostic]:
    found = []
    for name, hint in _hints(type(config)).items():
        value = getattr(config, name)
        options = _OPTIONS.get(name)
        if not _fits(value, hint):
            found.append(
                _mistake(
                    "SP153",
                    f"`{name}` is {value!r}, {with_article(type(value).__name__)}",
                    help=f"it has to be {_hint_text(hint)}",
                )
            )
        elif options and value is not None and value not in options:
            found.append(
                _mistake(
                    "SP154",
                    f"`{name}` is {value!r}, which is no option of it",
                    help=suggestion(value, options, "it"),
                )
            )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found += _range_mistakes(name, value)
    return found


def _range_mistakes(name: str, value: float) -> list[Diagnostic]:
    if name in _PROBABILITIES and not 0 <= value < 1:
        return [_mistake("SP155", f"`{name}` is {value}", help="it has to be in [0, 1)")]
    if name == "rotary_percent" and not 0 < value <= 1:
        return [_mistake("SP155", f"`{name}` is {value}", help="it has to be in (0, 1]")]
    if value < 0 or (value == 0 and name not in _AT_LEAST_ZERO):
        least = "at least 0" if name in _AT_LEAST_ZERO else "above 0"
        return [_mistake("SP155", f"`{name}` is {value}", help=f"it has to be {least}")]
    return []


def _fits(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        part = typing.get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(v, part) for v in value)
    if hint in (int, float, bool):
        return type(value) is hint
    return not isinstance(hint, type) or isinstance(value, hint)


def _hint_text(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "True or False", str: "a string"}
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_hint_text(part) for part in typing.get_args(hint))
    if hint is type(None):
        return "None"
    return names.get(hint, "a tuple of whole numbers" if "int" in str(hint) else str(hint))
