"""What a router does beside its choice: dtype, jitter, the bias, and fields that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from moe_routers import EXPERTS, SIZES
from torch import Tensor, nn

from specc.runtime import Mesh, Turn, begin_micro_batch, finish_step, within_capacity
from specc.templates import (
    MLP,
    GPTModel,
    ModuleSpec,
    MoELayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)
from specc.templates.config import ConfigError


def model_of(**fields: Any) -> nn.Module:
    config = TransformerConfig(
        **SIZES,
        num_moe_experts=EXPERTS,
        vocab_size=61,
        max_position_embeddings=16,
        **fields,
    )
    attention = ModuleSpec(SelfAttention)
    layers = {
        name: ModuleSpec(
            TransformerLayer,
            submodules={"self_attention": attention, "mlp": ModuleSpec(half)},
        )
        for name, half in (("layer_spec", MLP), ("moe_layer_spec", MoELayer))
    }
    if "moe_layer_freq" not in fields:
        del layers["layer_spec"]
    decoder = ModuleSpec(TransformerBlock, params=layers)
    return ModuleSpec(GPTModel, {"config": config}, {"decoder": decoder}).build_module()


def losses(model: nn.Module, index: int = 0, count: int = 1) -> Tensor:
    begin_micro_batch(
        model, Turn(seed=1, step=2, first_sequence=2 * index, index=index, count=count)
    )
    ids = torch.arange(24).view(2, 12) % 61
    loss: Tensor = model(ids, ids)
    return loss


def test_layers_with_experts_go_by_their_frequency() -> None:
    for frequency, expected in (((0, 1), [False, True]), (2, [True, False])):
        layers = model_of(moe_layer_freq=frequency).get_submodule("decoder.layers").children()
        assert [hasattr(layer.mlp, "router") for layer in layers] == expected


def test_a_router_in_float64_chooses_alike() -> None:
    first, second = model_of(), model_of(moe_router_dtype="fp64")
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(losses(first), losses(second), rtol=1e-5, atol=1e-5)


def test_jitter_is_noise_in_training_alone_and_the_same_again() -> None:
    plain, model = model_of(), model_of(moe_input_jitter_eps=0.3)
    model.load_state_dict(plain.state_dict())
    first, again, other = losses(model), losses(model), losses(model, index=1, count=2)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first, losses(plain))
    model.eval()
    plain.eval()
    assert torch.equal(losses(model), losses(plain))


def test_the_bias_moves_once_a_step_by_the_sign_of_what_is_missing() -> None:
    model = model_of(
        moe_router_score_function="sigmoid",
        moe_router_enable_expert_bias=True,
        moe_router_bias_update_rate=0.25,
    )
    chosen: list[Tensor] = []
    router = model.get_submodule("decoder.layers.0.mlp.router")
    router.register_forward_hook(lambda module, given, result: chosen.append(result[1]))
    for index in range(2):
        losses(model, index, 2).sum().backward()
        losses(model, index, 2)  # a recompute counts nothing twice
    finish_step(model, Mesh.single())
    counts = torch.stack([(torch.cat(chosen[::2]) == e).sum() for e in range(EXPERTS)]).float()
    expected = 0.25 * torch.sign(counts.mean() - counts)
    assert torch.equal(router.get_parameter("expert_bias"), expected)
    finish_step(model, Mesh.single())
    assert torch.equal(router.get_parameter("expert_bias"), expected)


def test_all_tokens_to_one_expert_and_none_to_others() -> None:
    model = model_of(moe_router_topk=2)
    for layer in model.get_submodule("decoder.layers").children():
        with torch.no_grad():
            layer.mlp.router.weight.zero_()  # equal scores: top-k takes the same ones for all
    losses(model).sum().backward()
    gradient = model.get_parameter("decoder.layers.1.mlp.experts.linear_fc1.weight").grad
    assert gradient is not None and gradient.isfinite().all()
    used = [bool(part.abs().max() > 0) for part in gradient]
    assert sum(used) == 2


@pytest.mark.parametrize("policy", ["probs", "position"])
def test_a_full_expert_drops_the_least_probable_or_the_last(policy: str) -> None:
    """Megatron-Core's choice by position is torch.topk of ones, whose order torch leaves open."""
    generator = torch.Generator().manual_seed(4)
    b, t, k = 3, 7, 2
    experts = torch.rand(b, t, 4, generator=generator).topk(k).indices
    probs = torch.rand(b, t, k, generator=generator)
    found = within_capacity(probs, experts, 4, 0.6, Mesh.single(), policy=policy)
    capacity = 7  # ceil(21 x 2 / 4 x 0.6)
    dropped = 0
    for expert in range(4):
        # In the global order of tokens: by place, then by sequence.
        queue = [(s, r, c) for s in range(t) for r in range(b) for c in range(k)]
        queue = [(s, r, c) for s, r, c in queue if experts[r, s, c] == expert]
        if policy == "probs":
            queue.sort(key=lambda place: -probs[place[1], place[0], place[2]].item())
        for number, (s, r, c) in enumerate(queue):
            assert found[r, s, c] == (expert if number < capacity else -1)
            dropped += number >= capacity
    assert dropped


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"moe_router_topk": 9}, "`moe_router_topk` is 9"),
        ({"moe_router_topk": 1}, "is always 1"),
        ({"moe_router_enable_expert_bias": True}, "the scores are a softmax"),
        ({"moe_router_num_groups": 4}, "`moe_router_group_topk` is None"),
        ({"moe_router_num_groups": 3, "moe_router_group_topk": 1}, "do not fit"),
        ({"moe_layer_freq": (1,)}, "`moe_layer_freq` is"),
        ({"moe_pad_expert_input_to_capacity": True}, "no capacity"),
        ({"moe_apply_probs_on_input": True}, "`moe_router_topk` is 2"),
        ({"moe_shared_expert_gate": True}, "no shared expert"),
        ({"moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.1}, '"none"'),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        model_of(**fields)
