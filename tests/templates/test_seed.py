"""The seed's whole example, steps 1 to 3."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

from specc.templates import LayerNorm, prepare


@pytest.fixture(scope="module")
def seed() -> ModuleType:
    return importlib.import_module("seed_gpt")  # builds the model and trains a step on import


def test_it_runs_as_it_stands(seed: ModuleType) -> None:
    assert tuple(seed.logits.shape) == (2, 15, 50257)
    assert seed.loss.item() == pytest.approx(torch.tensor(50257.0).log().item(), abs=0.5)


def test_it_says_how_it_was_understood(seed: ModuleType) -> None:
    prepared = prepare(seed.diy_simple_gpt_spec)
    assert [note.code for note in prepared.notes] == ["SP191", "SP190"]
    assert all(note.span and note.span.file == seed.__file__ for note in prepared.notes)


def test_its_attention_is_rotary_and_its_norms_are_layer_norms(seed: ModuleType) -> None:
    decoder = seed.model.decoder
    assert decoder.config.position_embedding_type == "rope"
    assert seed.model.embeddings.position_embeddings is None
    assert isinstance(decoder.final_layernorm, LayerNorm)
    assert isinstance(decoder.layers[0].input_layernorm, LayerNorm)


def test_its_loss_is_the_mean_over_labels(seed: ModuleType) -> None:
    rows = seed.logits.flatten(0, 1)
    assert torch.equal(seed.loss, F.cross_entropy(rows, seed.labels.flatten()))
