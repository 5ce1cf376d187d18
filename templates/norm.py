"""Norms over the hidden size, or over the channels of a head."""

from __future__ import annotations

from specc import runtime
from specc.runtime import Mesh

from .config import ModelParallelConfig


class LayerNorm(runtime.LayerNorm):
    """Layer norm, computed in float32; its width and epsilon are the config's unless given."""

    def __init__(
        self,
        config: ModelParallelConfig,
        hidden_size: int | None = None,
        eps: float | None = None,
    ) -> None:
        super().__init__(
            config.hidden_size if hidden_size is None else hidden_size,
            config.layernorm_epsilon if eps is None else eps,
            zero_centered=config.layernorm_zero_centered_gamma,
            bias=config.layernorm_bias,
        )


class RMSNorm(runtime.RMSNorm):
    """RMS norm, computed in float32; its width and epsilon are the config's unless given."""

    def __init__(
        self,
        config: ModelParallelConfig,
        hidden_size: int | None = None,
        eps: float | None = None,
    ) -> None:
        super().__init__(
            config.hidden_size if hidden_size is None else hidden_size,
            config.layernorm_epsilon if eps is None else eps,
            zero_centered=config.layernorm_zero_centered_gamma,
        )


class HeadsRMSNorm(runtime.HeadsRMSNorm):
    """RMS norm over the channels of all heads together, in the place of q_layernorm or k_layernorm.

    Their number is the parent's to say: `hidden_size` is the channels of a head.
    """

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        heads: int,
        hidden_size: int | None = None,
        eps: float | None = None,
    ) -> None:
        super().__init__(
            heads,
            config.head_dim if hidden_size is None else hidden_size,
            mesh,
            config.layernorm_epsilon if eps is None else eps,
            zero_centered=config.layernorm_zero_centered_gamma,
        )
