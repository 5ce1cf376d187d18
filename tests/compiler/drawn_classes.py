"""What a user adds to the templates, as random configurations draw it: a model and half a layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specc.templates import MegatronModule, TransformerConfig


class Bottleneck(MegatronModule):
    """Stands where an MLP does; of PyTorch's own parts alone."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.down = nn.Linear(width, width // 4, bias=config.add_bias_linear)
        self.gain = nn.Parameter(torch.randn(width // 4) * 0.1)
        self.up = nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(torch.tanh(self.down(x)) * (1 + self.gain))


class MeanLossModel(MegatronModule):
    """A model that is handed its children built, and returns the mean loss beside whole logits."""

    def __init__(
        self,
        config: TransformerConfig,
        embedding: MegatronModule,
        decoder: MegatronModule,
        output_layer: MegatronModule,
    ) -> None:
        super().__init__(config=config)
        self.embedding = embedding
        self.decoder = decoder
        self.output_layer = output_layer

    def forward(self, input_ids: Tensor, labels: Tensor | None = None):  # type: ignore[no-untyped-def]
        logits = self.output_layer(hidden_states=self.decoder(self.embedding(input_ids=input_ids)))
        if labels is None:
            return logits
        loss = nn.CrossEntropyLoss(ignore_index=-100)(logits.flatten(0, 1), labels.reshape(-1))
        return loss, logits
