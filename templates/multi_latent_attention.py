"""Self attention whose keys and values come from a narrow latent of each token."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specc.runtime import (
    ColumnParallelLinear,
    Linear,
    Mesh,
    Positions,
    RowParallelLinear,
    apply_rotary,
    attention,
    gather_positions,
)

from .base import MegatronModule
from .config import ModelParallelConfig
from .spec import Node, build_module


@dataclass
class MLASelfAttentionSubmodules:
    """The children of MLASelfAttention.

    Queries have either `linear_q_proj` or, where `config.q_lora_rank` is set, a down and an up
    projection. A class in the place of a down projection takes what the runtime's Linear takes. The
    norms of the latents go with `config.qk_layernorm`, as those of SelfAttention do.
    """

    linear_q_proj: Node = ColumnParallelLinear
    linear_q_down_proj: Node = Linear
    linear_q_up_proj: Node = ColumnParallelLinear
    linear_kv_down_proj: Node = Linear
    linear_kv_up_proj: Node = ColumnParallelLinear
    core_attention: Node = None
    linear_proj: Node = RowParallelLinear
    q_layernorm: Node = field(default=None, metadata={"unnamed": "qk_norm"})
    kv_layernorm: Node = field(default=None, metadata={"unnamed": "qk_norm"})


class MLASelfAttention(MegatronModule):
    """Causal multi-latent self attention (arXiv 2405.04434).

    The keys and values of all heads come from one narrow latent of each token.
    The queries come from another. [if config.q_lora_rank is not None]
    Positions are rotated into channels of their own, whose key all heads share.
    """

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: MLASelfAttentionSubmodules,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        heads = config.num_attention_heads
        q_head_dim = config.qk_head_dim + config.qk_pos_emb_head_dim
        if config.rope_scaling != "yarn" or config.yarn_mscale_all_dim == 0.0:
            self.softmax_scale = config.softmax_scale
        else:
            # YaRN: the further positions are stretched, the sharper the softmax.
            mscale = 0.1 * config.yarn_mscale_all_dim * math.log(config.rope_scaling_factor) + 1.0
            self.softmax_scale = mscale**2 * q_head_dim**-0.5
        if config.q_lora_rank is None:
            self.linear_q_proj = build_module(
                submodules.linear_q_proj,
                config.hidden_size,
                heads * q_head_dim,
                mesh,
                unit=q_head_dim,
                init_std=config.init_method_std,
            )
        else:
            self.linear_q_down_proj = build_module(
                submodules.linear_q_down_proj,
                config.hidden_size,
                config.q_lora_rank,
                init_std=config.init_method_std,
            )
            if config.qk_layernorm:
                self.q_layernorm = build_module(
                    submodules.q_layernorm,
                    config,
                    hidden_size=config.q_lora_rank,
                    eps=(
                        config.layernorm_epsilon
                        if config.latent_layernorm_epsilon is None
                        else config.latent_layernorm_epsilon
                    ),
                )
            self.linear_q_up_proj = build_module(
                submodules.linear_q_up_proj,
                config.q_lora_rank,
                heads * q_head_dim,
                mesh,
                unit=q_head_dim,
                init_std=config.init_method_std,
            )
        # Rows: the latent, then the key's rotated channels.
        self.linear_kv_down_proj = build_module(
            submodules.linear_kv_down_proj,
            config.hidden_size,
            config.kv_lora_rank + config.qk_pos_emb_head_dim,
            init_std=config.init_method_std,
        )
        if config.qk_layernorm:
            self.kv_layernorm = build_module(
                submodules.kv_layernorm,
                config,
                hidden_size=config.kv_lora_rank,
                eps=(
                    config.layernorm_epsilon
                    if config.latent_layernorm_epsilon is None
                    else config.latent_layernorm_epsilon
                ),
            )
        # Rows go head by head, [key | value], so that any tp cuts between heads.
        self.linear_kv_up_proj = build_module(
            submodules.linear_kv_up_proj,
            config.kv_lora_rank,
            heads * (config.qk_head_dim + config.v_head_dim),
            mesh,
            unit=config.qk_head_dim + config.v_head_dim,
            init_std=config.init_method_std,
        )
        if submodules.core_attention is not None:
            self.core_attention = build_module(
                submodules.core_attention, config, layer_number=layer_number
            )
        else:
            self.core_attention = None
        self.linear_proj = build_module(
            submodules.linear_proj,
            heads * config.v_head_dim,
            config.hidden_size,
            mesh,
            bias=config.add_bias_linear,
            init_std=config.init_method_std
            / (config.num_layers if config.hybrid_layer_pattern else 2 * config.num_layers) ** 0.5,
        )

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        nope, pos = self.config.qk_head_dim, self.config.qk_pos_emb_head_dim
        value = self.config.v_head_dim
        if self.config.q_lora_rank is None:
            q = self.linear_q_proj(x)  # gathers the positions over tp: [b, s, n * (nope + pos)]
        elif self.config.qk_layernorm:
            # The up projection gathers the positions over tp: [b, s, n * (nope + pos)].
            q = self.linear_q_up_proj(self.q_layernorm(self.linear_q_down_proj(x)))
        else:
            # The up projection gathers the positions over tp: [b, s, n * (nope + pos)].
            q = self.linear_q_up_proj(self.linear_q_down_proj(x))
        q, q_pos = q.unflatten(-1, (-1, nope + pos)).split((nope, pos), dim=-1)  # [b, s, n, ..]

        latent, k_pos = self.linear_kv_down_proj(x).split((self.config.kv_lora_rank, pos), dim=-1)
        k_pos = gather_positions(k_pos, self.mesh)[:, :, None]  # [b, s, 1, pos]
        if self.config.qk_layernorm:
            latent = self.kv_layernorm(latent)
        kv = self.linear_kv_up_proj(latent).unflatten(-1, (-1, nope + value))
        k, v = kv.split((nope, value), dim=-1)  # [b, s, n, ..]

        if self.config.rotary_interleaved:
            q_pos, k_pos = (apply_rotary(t, *rotary, interleaved=True) for t in (q_pos, k_pos))
        else:
            q_pos, k_pos = apply_rotary(q_pos, *rotary), apply_rotary(k_pos, *rotary)
        q = torch.cat((q, q_pos), dim=-1)
        k = torch.cat((k, k_pos.expand(-1, -1, k.shape[2], -1)), dim=-1)
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
                dropout=(
                    self.config.attention_dropout
                    if self.config.attention_dropout > 0.0 and self.training
                    else 0.0
                ),
                scale=self.softmax_scale,
                mask=attention_mask,
            )  # exchanges k and v over cp
        # Sums over tp, keeps this rank's positions: [b, t, h].
        return self.linear_proj(y.flatten(2))
