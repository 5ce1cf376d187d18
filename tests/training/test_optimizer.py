"""The learning rate of a step, and which parameters decay."""

import pytest
import torch
from torch import nn

from specc.runtime.optimizer import STATES, Schedule, adamw, set_rate, set_step_count


def test_the_rate_warms_up_then_falls_to_the_last() -> None:
    schedule = Schedule(lr=1.0, min_lr=0.1, warmup=4, steps=14)
    rates = [schedule(step) for step in range(14)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[8] == pytest.approx(0.55)  # half way between the two
    assert rates[13] == pytest.approx(0.1)
    assert Schedule(lr=1.0, min_lr=0.1, warmup=0, steps=1)(0) == pytest.approx(0.1)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    layers[2].weight = layers[0].weight
    layers[1].bias.requires_grad_(False)
    return layers


def test_vectors_do_not_decay_and_a_tied_weight_counts_once() -> None:
    network = model()
    optimizer = adamw(network, lr=0.1, betas=(0.9, 0.95), weight_decay=0.5)
    matrices, vectors = optimizer.param_groups
    assert [id(p) for p in matrices["params"]] == [id(network[0].weight)]
    assert len(vectors["params"]) == 3  # the frozen bias is in neither
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.5, 0.0)


def test_it_is_torch_adamw() -> None:
    ours, theirs = model(), model()
    optimizer = adamw(ours, lr=0.0, betas=(0.9, 0.95), weight_decay=0.1)
    assert all(set(state) == {"step", *STATES} for state in optimizer.state.values())
    parameters = [p for p in theirs.parameters() if p.requires_grad]
    reference = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        fused=True,
    )
    for step in range(3):
        for network, steps in ((ours, optimizer), (theirs, reference)):
            network(torch.ones(2, 4)).square().sum().backward()
            set_rate(steps, 0.01 * (step + 1))
            steps.step()
            steps.zero_grad()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)
    set_step_count(optimizer, 7)
    assert {float(state["step"]) for state in optimizer.state.values()} == {7.0}
