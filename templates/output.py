"""Output layers: hidden states to logits over the vocabulary."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from torch import Tensor

from specc.runtime import ColumnParallelLinear, Mesh

from .base import MegatronModule
from .config import ModelParallelConfig


class OutputLayer(ColumnParallelLinear):
    """Hidden states [b, t, h] to this rank's logits [b, s, v], the vocabulary cut over tp."""

    def __init__(self, config: ModelParallelConfig, mesh: Mesh) -> None:
        super().__init__(
            config.hidden_size,
            config.vocab_size,
            mesh,
            pad=True,
            bias=config.output_layer_bias,
            init_std=config.init_method_std,
        )


class TransformerLanguageModelOutputLayer(MegatronModule):
    """Hidden states to the logits of the whole vocabulary, for a loss that needs them all."""

    def __init__(self, config: ModelParallelConfig, mesh: Mesh) -> None:
        super().__init__(config)
        self.linear = ColumnParallelLinear(
            config.hidden_size,
            config.vocab_size,
            mesh,
            gather_output=True,
            pad=True,
            init_std=config.init_method_std,
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.linear(hidden_states)  # gathers positions and vocabulary over tp: [b, s, v]
