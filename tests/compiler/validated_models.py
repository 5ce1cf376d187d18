"""Models whose pages the tests of validation compare, whole and spoilt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc.templates import (
    MLP,
    GPTModel,
    IdentityOp,
    LanguageModelEmbedding,
    LayerNorm,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLanguageModelOutputLayer,
    TransformerLayer,
)


@dataclass(frozen=True)
class Sizes:
    """A user's own config."""

    hidden_size: int = 768
    vocab_size: int = 1000
    max_position_embeddings: int = 64


class MeanLossModel(nn.Module):
    """Children are handed in; the loss is a mean, as in the seed's example."""

    def __init__(
        self, config: TransformerConfig, embeddings: nn.Module, decoder: nn.Module, head: nn.Module
    ) -> None:
        super().__init__()
        self.config = config
        self.embeddings = embeddings
        self.decoder = decoder
        self.head = head

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.head(self.decoder(self.embeddings(input_ids)))
        if labels is None:
            return logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return loss, logits


class CountingModel(nn.Module):
    """Plain torch layers, and a state that shows from the second call on."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mix = nn.Linear(config.hidden_size, config.hidden_size)
        self.scale = nn.Parameter(torch.ones(config.hidden_size) * 0.5)
        self.register_buffer("shift", torch.linspace(0.0, 1.0, config.hidden_size))
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        nn.init.normal_(self.head.weight, std=0.1)
        self.calls = 0

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.drop(self.embed(input_ids)) * self.scale + self.shift
        if self.training:
            self.calls += 1
        if self.calls > 1:
            x = x + self.mix(x)
        if not self.training:
            x = x * 2.0
        logits = self.head(x)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(
            labels
        )


@dataclass(frozen=True)
class DeepSizes(Sizes):
    depth: int = 12


class Half(nn.Module):
    """A layer of which many are alike; it stops halving in the second step."""

    def __init__(self, config: DeepSizes, factor: float) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)
        self.factor = factor
        self.calls = 0

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        y = self.linear(x) * self.factor
        if self.calls < 2:
            y = y * 0.5
        return y, {"size": y.detach().mean()}


class DeepModel(nn.Module):
    """The loop over the layers goes by their number."""

    def __init__(self, config: DeepSizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Half(config, 0.5) for _ in range(config.depth)])
        self.head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        size = x.new_zeros(())
        for i, layer in enumerate(self.layers):
            y, aside = layer(x)
            if i == 7:
                y = y * 2.0
            x = x + y
            size = size + aside["size"]
        return self.head(x * size)


class DatedModel(nn.Module):
    """Its forward takes something that validation has no example of."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, input_ids: Tensor, dates: Tensor) -> Tensor:
        return self.embed(input_ids) + dates


class ValueModel(nn.Module):
    """Its operations hang on values, which the meta device has none of."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        return x[input_ids > 3].sum(0, keepdim=True).expand(2, 4, -1)


class WideModel(nn.Module):
    """Its width is a number in the spec's params, for which there is no field."""

    def __init__(self, config: Sizes, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = nn.Linear(width, config.vocab_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


class FixedModel(nn.Module):
    """Its width stands in its own source."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = nn.Linear(768, config.vocab_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


class HugeModel(nn.Module):
    """Its source fixes 36 million parameters."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = nn.Linear(6000, 6000)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids))


class RestlessModel(nn.Module):
    """Draws from where nobody can set the generator back."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.embed(input_ids) * int.from_bytes(os.urandom(3), "big")


class DeafLayer(nn.Module):
    """A user's layer that has no use for positions, which its parent offers."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, x: Tensor, positions: Any = None, rotary: Any = None, attention_mask: Any = None
    ) -> Tensor:
        return x + self.up(x)


def config(**changed: Any) -> TransformerConfig:
    fields: dict[str, Any] = {
        "num_layers": 4,
        "hidden_size": 128,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "max_position_embeddings": 64,
    }
    return TransformerConfig(**(fields | changed))


def decoder(layer: dict[str, Any] | None = None, **params: Any) -> ModuleSpec:
    children = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    spec = ModuleSpec(TransformerLayer, submodules=children | (layer or {}))
    return ModuleSpec(TransformerBlock, params={"layer_spec": spec, **params})


def gpt(layer: dict[str, Any] | None = None, **changed: Any) -> ModuleSpec:
    return ModuleSpec(
        GPTModel,
        params={"config": config(**changed)},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": decoder(layer),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )


def llama() -> ModuleSpec:
    """The golden spec: 1.5 B parameters."""
    return gpt(
        num_layers=16,
        hidden_size=2048,
        num_attention_heads=32,
        num_query_groups=8,
        ffn_hidden_size=8192,
        vocab_size=128256,
        max_position_embeddings=8192,
        position_embedding_type="rope",
        rotary_base=500000,
        normalization="RMSNorm",
        activation="swiglu",
        layernorm_epsilon=1e-5,
    )


def options() -> ModuleSpec:
    """Many options at once."""
    return gpt(
        num_query_groups=2,
        kv_channels=24,
        position_embedding_type="rope",
        rotary_percent=0.5,
        rope_scaling="yarn",
        rope_scaling_factor=4.0,
        rope_scaling_original_max_position_embeddings=16,
        qk_layernorm=True,
        add_bias_linear=True,
        window_size=20,
        window_attn_skip_freq=2,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        attention_output_gate=True,
        untie_embeddings_and_output_weights=False,
    )


def sinks() -> ModuleSpec:
    return gpt(
        softmax_type="learnable",
        attn_logit_softcapping=20.0,
        window_size=9,
        window_attn_skip_freq=(1, 1, 0, 1),
        activation="geglu",
        init_method_std=0.05,
    )


def mean_loss() -> ModuleSpec:
    return ModuleSpec(
        MeanLossModel,
        params={"config": config()},
        submodules={
            "embeddings": ModuleSpec(LanguageModelEmbedding),
            "decoder": decoder(num_layers=4),
            "head": ModuleSpec(TransformerLanguageModelOutputLayer),
        },
    )


def counting() -> ModuleSpec:
    return plain(CountingModel)


def deep() -> ModuleSpec:
    return ModuleSpec(DeepModel, params={"config": DeepSizes(hidden_size=64)})


def plain(module: type[nn.Module], *, hidden_size: int = 768, **params: int) -> ModuleSpec:
    return ModuleSpec(module, params={"config": Sizes(hidden_size=hidden_size), **params})


def mixed_norms() -> ModuleSpec:
    norms = {"input_layernorm": ModuleSpec(RMSNorm), "pre_mlp_layernorm": ModuleSpec(LayerNorm)}
    return gpt(norms, activation="squared_relu", position_embedding_type="none")


def no_norms() -> ModuleSpec:
    return gpt({"input_layernorm": IdentityOp, "pre_mlp_layernorm": ModuleSpec(IdentityOp)})


def heterogeneous() -> ModuleSpec:
    """A list of layers of two kinds."""
    plain = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    bare = plain | {"pre_mlp_layernorm": IdentityOp}
    layers = [ModuleSpec(TransformerLayer, submodules=c) for c in (plain, bare, bare, plain)]
    return ModuleSpec(
        GPTModel,
        params={"config": config()},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_specs": layers}),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )
