"""Prediction of further tokens, against a plain computation place by place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from closeness import assert_all_close, assert_close, gradients, scatter
from small_models import config, tokens
from torch import Tensor

from specc.runtime import Mesh, Positions, Turn, begin_micro_batch, finish_step, rotary_tables
from specc.templates import (
    MLP,
    ConfigError,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    MultiTokenPredictionBlock,
    MultiTokenPredictionLayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

DEPTHS, FACTOR = 2, 0.3
ROPE: dict[str, Any] = {"position_embedding_type": "rope", "normalization": "RMSNorm"}


def build(**fields: Any) -> Any:
    options = config(mtp_num_layers=DEPTHS, mtp_loss_scaling_factor=FACTOR, **ROPE | fields)
    model = spec(options).build_module()
    scatter(model)
    return model


def spec(options: TransformerConfig) -> ModuleSpec:
    children = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    layer = ModuleSpec(TransformerLayer, submodules=children)
    further = ModuleSpec(MultiTokenPredictionLayer, submodules={"transformer_layer": layer})
    return ModuleSpec(
        GPTModel,
        params={"config": options},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": layer}),
            "mtp": ModuleSpec(MultiTokenPredictionBlock, params={"layer_spec": further}),
        },
    )


def plain(model: Any, ids: Tensor, labels: Tensor, starts: list[int]) -> tuple[Tensor, Tensor]:
    """The sums of the next token's losses and of the further ones', document by document."""
    first, further = torch.zeros(()), torch.zeros(())
    for row, target in zip(ids, labels, strict=True):
        for begin, end in zip(starts, [*starts[1:], len(row)], strict=True):
            one, wanted = row[begin:end], target[begin:end]
            x = model.decoder(model.embedding(one[None]))
            first = first + entropy(model, x, wanted)
            for depth, layer in enumerate(model.mtp.layers, 1):
                known = len(one) - depth  # places whose further token is in the document
                ahead = model.embedding(one[None, depth:])
                joined = torch.cat((layer.enorm(ahead), layer.hnorm(x[:, :known])), -1)
                # A later place sees earlier ones alone: those cut off change nothing before them.
                x = layer.transformer_layer(
                    F.linear(joined, layer.eh_proj.weight), *tables(model, joined)
                )
                x = layer.final_layernorm(x)
                further = further + entropy(model, x, wanted[depth:])
    return first, further


def tables(model: Any, x: Tensor) -> tuple[Positions, tuple[Tensor, Tensor]]:
    positions = Positions.of_hidden(x, Mesh.single())
    return positions, rotary_tables(positions, model.config.rotary_dim, model.config.rotary_base)


def entropy(model: Any, x: Tensor, wanted: Tensor) -> Tensor:
    logits = F.linear(x[0], model.output_layer.weight)
    return F.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("starts", [[0], [0, 5, 6]], ids=["one document", "packed"])
def test_losses_and_gradients(starts: list[int]) -> None:
    model, given = build(), tokens()
    ids, labels = given[:, :-1].contiguous(), given[:, 1:].clone()
    labels[0, 3] = labels[1, 8] = -100
    counted = int((labels != -100).sum())
    first, further = plain(model, ids, labels, starts)
    ((first + FACTOR / DEPTHS * further) / counted).backward()
    expected = gradients(model)
    model.zero_grad()

    begins = torch.tensor([max(s for s in starts if s <= place) for place in range(ids.shape[1])])
    packed = begins.expand(2, -1).contiguous() if len(starts) > 1 else None
    begin_micro_batch(model, Turn(0, 0, 0, 0, 1))
    positions = Positions.of(ids, Mesh.single(), packed)
    loss = model(ids, labels, positions=positions).sum()
    assert_close(loss, first, "loss")
    (loss / counted).backward()
    assert_all_close(gradients(model), expected)
    assert_close(finish_step(model, Mesh.single())["mtp_loss"], further / counted, "mtp_loss")


def test_it_runs_in_training_alone() -> None:
    model, given = build().eval(), tokens()
    model.mtp.forward = None  # whoever calls it fails
    loss = model(given[:, :-1], given[:, 1:].contiguous())
    model.train()
    with pytest.raises(TypeError):
        model(given[:, :-1], given[:, 1:].contiguous())
    assert model(given[:, :-1]).shape == (2, 12, 61) and loss.shape == (2, 12)


def test_learned_positions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"learned.* `mtp_num_layers`"):
        config(mtp_num_layers=1, position_embedding_type="learned_absolute")
