"""Token embedding, with learned positions where the config asks for them."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from specc.runtime import Dropout, Mesh, PositionEmbedding, Positions, VocabParallelEmbedding

from .base import MegatronModule
from .config import ModelParallelConfig


class LanguageModelEmbedding(MegatronModule):
    """Token embedding plus learned positions. [if self.position_embeddings is not None]"""

    def __init__(
        self,
        config: ModelParallelConfig,
        mesh: Mesh,
        use_position_embeddings: bool | None = None,
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        self.word_embeddings = VocabParallelEmbedding(
            config.vocab_size, config.hidden_size, mesh, init_std=config.init_method_std
        )
        if use_position_embeddings is None:
            use_position_embeddings = config.position_embedding_type in (None, "learned_absolute")
        if not use_position_embeddings:
            self.position_embeddings: PositionEmbedding | None = None
        else:
            self.position_embeddings = PositionEmbedding(
                config.max_position_embeddings,
                config.hidden_size,
                mesh,
                init_std=config.init_method_std,
            )
        if config.embedding_dropout_rate > 0.0:
            if config.embedding_dropout is not None:
                self.embedding_dropout = Dropout(config.embedding_dropout, mesh)
            else:
                self.embedding_dropout = Dropout(config.hidden_dropout, mesh)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        x = self.word_embeddings(input_ids)  # [b, t, h]
        if self.config.embedding_multiplier is not None:
            x = x * self.config.embedding_multiplier
        if self.position_embeddings is not None:
            if positions is None:
                positions = Positions.of(input_ids, self.mesh)
            if position_ids is None:
                x = x + self.position_embeddings(positions)
            else:
                # The caller numbers the places of every sequence: [b, s], of which this rank's t.
                position_ids = position_ids[:, Positions.of(input_ids, self.mesh).local_ids]
                weight = self.position_embeddings.weight.to(x.dtype)
                x = x + F.embedding(position_ids, weight)
        if self.config.embedding_dropout_rate > 0.0:
            if positions is None:
                positions = Positions.of(input_ids, self.mesh)
            x = self.embedding_dropout(x, positions)
        return x
