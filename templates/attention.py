"""Self attention."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    Normal,
    ParameterRecord,
    Positions,
    RowParallelLinear,
    apply_rotary,
    attention,
    declare,
)

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class SelfAttentionSubmodules:
    """The children of SelfAttention.

    A class in the place of a projection takes what ColumnParallelLinear and RowParallelLinear
    take. The norms go with `config.qk_layernorm`: where it is set, a dict that leaves them out gets
    the config's norm, and a dataclass has to name them. `core_attention` None is the runtime's
    `attention`; a module in its place is built with (config, mesh, layer_number) where it names
    them, and called with q [b, s, n, d], k and v [b, s, g, d], positions and the mask.
    """

    linear_qkv: Node = ColumnParallelLinear
    core_attention: Node = None
    linear_proj: Node = RowParallelLinear
    q_layernorm: Node = field(default=None, metadata={"unnamed": "qk_norm"})
    k_layernorm: Node = field(default=None, metadata={"unnamed": "qk_norm"})


class SelfAttention(MegatronModule):
    """Causal self attention.

    Each key/value head serves a group of query heads. [if config.num_query_groups is not None]
    """

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: SelfAttentionSubmodules,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        self.head_dim = config.head_dim
        if config.num_query_groups is not None:
            self.group_size = config.num_attention_heads // config.num_query_groups
        if config.window_size is None:
            self.window: int | None = None
        elif config.window_attn_skip_freq is None:
            self.window = config.window_size
        elif isinstance(config.window_attn_skip_freq, int):
            # Every `window_attn_skip_freq`-th layer sees the whole sequence.
            is_full = layer_number % config.window_attn_skip_freq == 0
            self.window = None if is_full else config.window_size
        else:
            # The pattern has 1 for a layer with a window, 0 for one that sees the whole sequence.
            is_windowed = config.window_attn_skip_freq[layer_number - 1]
            self.window = config.window_size if is_windowed else None
        if config.num_query_groups is None and config.attention_output_gate:
            # Rows go head by head, [query | gate | key | value], so that any tp cuts between heads.
            unit = 4 * config.head_dim
        elif config.num_query_groups is None:
            # Rows go head by head, [query | key | value], so that any tp cuts between heads.
            unit = 3 * config.head_dim
        elif config.attention_output_gate:
            # Rows go group by group, [query heads | gates | key | value]: any tp cuts between them.
            unit = (2 * self.group_size + 2) * config.head_dim
        else:
            # Rows go group by group, [query heads | key | value]; any tp cuts between groups.
            unit = (self.group_size + 2) * config.head_dim
        self.linear_qkv = build_module(
            submodules.linear_qkv,
            config.hidden_size,
            config.query_groups * unit,
            mesh,
            bias=config.add_bias_linear or config.add_qkv_bias,
            unit=unit,
            init_std=config.init_method_std,
        )
        if config.qk_layernorm:
            # One norm over the channels of a head, the same for all heads.
            self.q_layernorm = build_module(
                submodules.q_layernorm,
                config,
                hidden_size=config.head_dim,
                eps=config.layernorm_epsilon,
                heads=config.num_attention_heads,
            )
            self.k_layernorm = build_module(
                submodules.k_layernorm,
                config,
                hidden_size=config.head_dim,
                eps=config.layernorm_epsilon,
                heads=config.query_groups,
            )
        if submodules.core_attention is not None:
            self.core_attention = build_module(
                submodules.core_attention, config, layer_number=layer_number
            )
        else:
            self.core_attention = None
        if config.softmax_type == "learnable":
            # One more logit for each head in the softmax, which no value belongs to.
            self.softmax_offset = nn.Parameter(
                torch.empty(config.num_attention_heads // mesh.tp.size)
            )
            declare(
                self,
                "softmax_offset",
                ParameterRecord(
                    (config.num_attention_heads,), dim=0, law=Normal(config.init_method_std)
                ),
            )
        self.linear_proj = build_module(
            submodules.linear_proj,
            config.num_attention_heads * config.head_dim,
            config.hidden_size,
            mesh,
            bias=config.has_attention_output_bias,
            init_std=config.init_method_std
            / (config.num_layers if config.hybrid_layer_pattern else 2 * config.num_layers) ** 0.5,
        )

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        if self.config.num_query_groups is None and self.config.attention_output_gate:
            qkv = self.linear_qkv(x)  # gathers the positions over tp: [b, s, n * 4 * d]
            q, gate, k, v = qkv.unflatten(-1, (-1, 4, self.head_dim)).unbind(-2)  # [b, s, n, d]
        elif self.config.num_query_groups is None:
            qkv = self.linear_qkv(x)  # gathers the positions over tp: [b, s, n * 3 * d]
            q, k, v = qkv.unflatten(-1, (-1, 3, self.head_dim)).unbind(-2)  # [b, s, n, d]
        elif self.config.attention_output_gate:
            qkv = self.linear_qkv(x)  # gathers the positions over tp: [b, s, g * (2 group + 2) * d]
            qkv = qkv.unflatten(-1, (-1, 2 * self.group_size + 2, self.head_dim))
            q, gate, k, v = qkv.split((self.group_size, self.group_size, 1, 1), dim=-2)
            q, gate = q.flatten(2, 3), gate.flatten(2, 3)  # [b, s, n, d]
            k, v = k.squeeze(3), v.squeeze(3)  # [b, s, g, d]
        else:
            qkv = self.linear_qkv(x)  # gathers the positions over tp: [b, s, g * (group + 2) * d]
            qkv = qkv.unflatten(-1, (-1, self.group_size + 2, self.head_dim))
            q, k, v = qkv.split((self.group_size, 1, 1), dim=-2)
            q, k, v = q.flatten(2, 3), k.squeeze(3), v.squeeze(3)  # [b, s, n, d], [b, s, g, d]

        if self.config.qk_layernorm:
            q, k = self.q_layernorm(q), self.k_layernorm(k)
        if self.config.clip_qkv is not None:
            limit = self.config.clip_qkv
            q, k, v = q.clamp(-limit, limit), k.clamp(-limit, limit), v.clamp(-limit, limit)
        if rotary is not None:
            if self.config.rotary_base_local is not None:
                # Tables of layers that see everything, and of those with a window.
                table = 0 if self.window is None else 1
                rotary = rotary[0][table], rotary[1][table]
            if self.config.rotary_interleaved:
                q, k = (apply_rotary(t, *rotary, interleaved=True) for t in (q, k))
            else:
                q, k = apply_rotary(q, *rotary), apply_rotary(k, *rotary)
        if self.core_attention is not None:
            y = self.core_attention(q, k, v, positions, attention_mask)
        else:
            y = attention(
                q,
                k,
                v,
                positions,
                self.mesh,
                causal=True,
                window=self.window,
                softcap=self.config.attn_logit_softcapping,
                sinks=(
                    self.softmax_offset
                    if self.config.softmax_type == "learnable"
                    else q.new_zeros(q.shape[2])
                    if self.config.softmax_type == "off-by-one"
                    else None
                ),
                dropout=(
                    self.config.attention_dropout
                    if self.config.attention_dropout > 0.0 and self.training
                    else 0.0
                ),
                scale=self.config.softmax_scale,
                mask=attention_mask,
            )  # exchanges k and v over cp
        if self.config.attention_output_gate:
            y = y * gate.float().sigmoid().to(y.dtype)
        # Sums over tp, keeps this rank's positions: [b, t, h].
        return self.linear_proj(y.flatten(2))
