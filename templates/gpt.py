"""A decoder-only language model."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specc.runtime import Mesh, Positions, linear_cross_entropy, softcap, tokens_ahead

from .base import MegatronModule
from .config import ModelParallelConfig
from .embedding import LanguageModelEmbedding
from .output import OutputLayer
from .spec import Node, build_module, required_slot


@dataclass
class GPTModelSubmodules:
    """The children of GPTModel."""

    embedding: Node = LanguageModelEmbedding
    decoder: Node = required_slot()
    output_layer: Node = OutputLayer
    mtp: Node = None


class GPTModel(MegatronModule):
    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: GPTModelSubmodules
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        self.embedding = build_module(submodules.embedding, config)
        self.decoder = build_module(submodules.decoder, config)
        self.output_layer = build_module(submodules.output_layer, config)
        if not config.untie_embeddings_and_output_weights:
            # The embedding and the output layer are one table.
            self.output_layer.weight = self.embedding.word_embeddings.weight
        if submodules.mtp is not None:
            self.mtp = build_module(submodules.mtp, config)
        else:
            self.mtp = None

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        positions: Positions | None = None,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Each token's loss [b, s] where shifted labels are given, else logits [b, s, v]."""
        positions = positions or Positions.of(input_ids, self.mesh)
        x = self.embedding(input_ids, positions=positions) if self.mesh.first_stage else hidden
        x = self.decoder(x, positions)
        if not self.mesh.last_stage:
            return x  # [b, t, h], the hidden of a pipeline's next stage
        if self.config.logits_multiplier is not None:
            x = x * self.config.logits_multiplier
        if labels is None:
            if self.config.final_logit_softcapping is not None:
                return softcap(self.output_layer(x), self.config.final_logit_softcapping)
            return self.output_layer(x)
        if self.config.final_logit_softcapping is not None:
            cap = self.config.final_logit_softcapping
            return linear_cross_entropy(x, self.output_layer, labels, self.mesh, softcap=cap)
        if self.mtp is None:
            return linear_cross_entropy(x, self.output_layer, labels, self.mesh)
        loss = linear_cross_entropy(x, self.output_layer, labels, self.mesh)
        if not self.training:
            return loss
        assert self.config.mtp_num_layers is not None
        # Tokens further ahead train along; the loss is the next one's as before.
        further = tokens_ahead(input_ids, positions, self.mesh, self.config.mtp_num_layers)
        ahead = [self.embedding(ids, positions=positions) for ids in further]
        return self.mtp(loss, x, ahead, labels, positions, self.output_layer)
