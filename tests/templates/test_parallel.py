"""The options under tensor parallel, with and without sequence parallel, against one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from closeness import assert_all_close, assert_close
from small_models import config, gpt_spec, tokens
from torch import Tensor

from specc.runtime import (
    Mesh,
    full_tensors,
    local_loss,
    set_dropout_step,
    sum_replicated_gradients,
)

ROPE = {"position_embedding_type": "rope"}
OPTIONS: dict[str, dict[str, Any]] = {
    "learned, biases": {"add_bias_linear": True, "num_query_groups": 2},
    "heads alone": ROPE | {"activation": "swiglu", "add_qkv_bias": True},
    "gate, groups, q and k norms": {
        "attention_output_gate": True,
        "num_query_groups": 2,
        "qk_layernorm": True,
        "normalization": "RMSNorm",
    }
    | ROPE,
    "sinks, window, cap, tied": {
        "softmax_type": "learnable",
        "window_size": 3,
        "window_attn_skip_freq": 2,
        "attn_logit_softcapping": 0.5,
        "untie_embeddings_and_output_weights": False,
    },
    "dropout": {"hidden_dropout": 0.3},
}
BOOSTED = {"init_method_std": 0.2}


def run(options: dict[str, Any], tp: int, sp: bool) -> tuple[Tensor, dict[str, Tensor], Any]:
    """The global loss, every gradient, and every initial value."""
    mesh = Mesh.launch(tp=tp, sequence_parallel=sp) if tp > 1 else Mesh.single()
    model = gpt_spec(config(**options, **BOOSTED)).build_module(mesh=mesh, seed=1)
    values = full_tensors(model, mesh)
    set_dropout_step(model, seed=0, step=0, first_sequence=0)
    text = tokens()
    ids, labels = text[:, :-1], text[:, 1:]
    losses = model(ids, labels)
    local_loss(losses, labels, "per_token", mesh, labels.numel()).backward()
    sum_replicated_gradients(model, mesh)
    return losses.detach(), full_tensors(model, mesh, grads=True), values


@pytest.mark.parametrize("sp", [False, True], ids=["", "sp"])
@pytest.mark.parametrize("name", OPTIONS)
def test_two_ranks_are_one_process(name: str, sp: bool, ranks: Callable[..., list[Any]]) -> None:
    losses, gradients, values = run(OPTIONS[name], 1, False)
    for their_losses, their_gradients, their_values in ranks(2, run, OPTIONS[name], 2, sp):
        assert all(torch.equal(values[n], their_values[n]) for n in values)
        assert_close(their_losses, losses, "loss")
        assert_all_close(their_gradients, gradients)


def test_a_layout_that_cuts_a_group_is_refused_with_both_numbers(
    ranks: Callable[..., list[Any]],
) -> None:
    with pytest.raises(AssertionError, match="tp=2 does not divide 1 output units"):
        ranks(2, run, {"num_query_groups": 1}, 2, False)
