"""Classes of the user's that extend a template: one method overridden, a constructor extended."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specc.runtime import Mesh, Positions
from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)


def config(**fields: Any) -> TransformerConfig:
    sizes = {"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11}
    return TransformerConfig(**sizes, max_position_embeddings=16, init_method_std=0.2, **fields)


def model(
    layer: type[nn.Module] = TransformerLayer,
    attention: type[nn.Module] = SelfAttention,
    mlp: type[nn.Module] = MLP,
    **fields: Any,
) -> ModuleSpec:
    """A whole model with the user's class in one of its slots."""
    inner = ModuleSpec(
        layer,
        submodules={
            "self_attention": ModuleSpec(attention),  # refused: StarLayer
            "mlp": ModuleSpec(mlp),
        },
    )
    return ModuleSpec(
        GPTModel,
        params={"config": config(**fields)},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": inner}),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )


class ParallelLayer(TransformerLayer):
    """Overrides forward alone."""

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = self.input_layernorm(x)
        a = self.self_attention(y, positions, rotary, attention_mask)
        return x + a + self.mlp(self.pre_mlp_layernorm(x))


def spec_ParallelLayer() -> ModuleSpec:
    return model(layer=ParallelLayer)


class ScaledLayer(TransformerLayer):
    """Extends the constructor and calls the template's forward."""

    def __init__(
        self, config: TransformerConfig, mesh: Mesh, layer_number: int = 1, *, submodules: Any
    ) -> None:
        super().__init__(config, mesh, layer_number, submodules=submodules)
        self.scale = nn.Parameter(torch.ones(config.hidden_size) * layer_number)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        return super().forward(x, positions, rotary, attention_mask) * self.scale


def spec_ScaledLayer() -> ModuleSpec:
    return model(layer=ScaledLayer, position_embedding_type="rope")


class StarLayer(TransformerLayer):
    """Hands everything on by `*` and `**`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def spec_StarLayer() -> ModuleSpec:
    return model(layer=StarLayer)


class CallsSuperStar(TransformerLayer):
    """Its forward hands everything on by `*`."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(*args, **kwargs) * 2


def spec_CallsSuperStar() -> ModuleSpec:
    return model(layer=CallsSuperStar)


class GatedAttention(SelfAttention):
    """A gate after the template's attention."""

    def __init__(
        self,
        config: TransformerConfig,
        mesh: Mesh,
        layer_number: int = 1,
        *,
        submodules: Any,
    ) -> None:
        super().__init__(config, mesh, layer_number, submodules=submodules)
        self.gate = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        y = super().forward(x, positions, rotary, attention_mask)
        return y * self.gate(x).sigmoid()


def spec_GatedAttention() -> ModuleSpec:
    return model(attention=GatedAttention, num_query_groups=1, window_size=4)


class OneMethod(MLP):
    """A template's class with one more method, and its forward around it."""

    def clip(self, x: Tensor) -> Tensor:
        return x.clamp(-3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.clip(super().forward(x))


def spec_OneMethod() -> ModuleSpec:
    return model(mlp=OneMethod, activation="swiglu")


class Norm(RMSNorm):
    """A template that is itself a class of the runtime with other arguments."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def spec_Norm() -> ModuleSpec:
    spec = model()
    layer = spec.submodules["decoder"].params["layer_spec"]
    layer.submodules["input_layernorm"] = ModuleSpec(Norm)
    return spec


class LoggingModel(GPTModel):
    """The root itself extended: its loss is another."""

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, positions: Positions | None = None
    ) -> Tensor:
        output = super().forward(input_ids, labels, positions)
        return output if labels is None else output * 0.5


def spec_LoggingModel() -> ModuleSpec:
    spec = model()
    return ModuleSpec(LoggingModel, params=spec.params, submodules=spec.submodules)
