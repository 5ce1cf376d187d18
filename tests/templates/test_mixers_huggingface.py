"""The mixers of hybrid stacks against Hugging Face's, same weights, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from closeness import assert_close
from small_models import config
from torch import Tensor, nn
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
from transformers.models.zamba2.modeling_zamba2 import Zamba2MambaMixer

from specc.runtime import Mesh, Positions
from specc.templates import GatedDeltaNet, MambaMixer, ModuleSpec

GROUPS = 2


def by_group(*parts: Tensor) -> Tensor:
    """Rows of each part, which go group by group, as rows of group after group."""
    return torch.cat([part.unflatten(0, (GROUPS, -1)) for part in parts], 1).flatten(0, 1)


def mamba() -> tuple[nn.Module, nn.Module, Callable[[Any], dict[str, Tensor]]]:
    """Norms over the channels of a group, as Nemotron-H and Zamba 2 have them."""
    theirs = Zamba2MambaMixer(
        transformers.Zamba2Config(
            hidden_size=32,
            num_hidden_layers=2,
            mamba_d_state=8,
            mamba_ngroups=GROUPS,
            mamba_headdim=16,
            n_mamba_heads=4,
            chunk_size=16,  # all places: its plain form of several chunks is another function
            time_step_min=0.0,  # its plain form cuts steps off there
            add_bias_linear=True,
        )
    )
    options = config(
        mamba_state_dim=8, mamba_head_dim=16, mamba_num_groups=GROUPS, add_bias_linear=True
    )
    ours = ModuleSpec(MambaMixer, params={"config": options}).build_module()
    width, states, heads = 64, GROUPS * 8, 4

    def renamed(of: Any) -> dict[str, Tensor]:
        own = {}
        for kind in ("weight", "bias"):
            rows = of[f"in_proj.{kind}"].split((width, width, states, states, heads))
            own[f"in_proj.{kind}"] = by_group(*rows)
            own[f"conv1d.{kind}"] = by_group(*of[f"conv1d.{kind}"].split((width, states, states)))
            own[f"out_proj.{kind}"] = of[f"out_proj.{kind}"]
        return own | {name: of[name] for name in ("dt_bias", "A_log", "D", "norm.weight")}

    return theirs, ours, renamed


def delta_net() -> tuple[nn.Module, nn.Module, Callable[[Any], dict[str, Tensor]]]:
    """Qwen3-Next's."""
    numbers = {
        "linear_conv_kernel_dim": 3,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 5,
        "linear_num_key_heads": GROUPS,
        "linear_num_value_heads": 6,
    }
    theirs = Qwen3NextGatedDeltaNet(
        transformers.Qwen3NextConfig(hidden_size=32, rms_norm_eps=1e-5, **numbers), 0
    )
    options = config(**numbers)
    ours = ModuleSpec(GatedDeltaNet, params={"config": options}).build_module()
    key, value = GROUPS * 6, 6 * 5

    def renamed(of: Any) -> dict[str, Tensor]:
        rows = of["in_proj_qkvz.weight"], of["in_proj_ba.weight"]  # both go group by group
        return {
            "in_proj.weight": by_group(*rows),
            "conv1d.weight": by_group(*of["conv1d.weight"].split((key, key, value))),
            "dt_bias": of["dt_bias"],
            "A_log": of["A_log"],
            "out_norm.weight": of["norm.weight"],
            "out_proj.weight": of["out_proj.weight"],
        }

    return theirs, ours, renamed


@pytest.mark.parametrize("pair", [mamba, delta_net])
def test_a_mixer(pair: Callable[..., Any]) -> None:
    theirs, ours, renamed = pair()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ours.load_state_dict(renamed(dict(theirs.named_parameters())))
    x = torch.randn(2, 11, 32, requires_grad=True)
    own = x.detach().clone().requires_grad_()
    positions = Positions.of(torch.zeros(2, 11, dtype=torch.int64), Mesh.single())
    y, expected = ours(own, positions), theirs(x)
    assert_close(y, expected, "output")
    weights = torch.randn_like(expected)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    assert x.grad is not None and own.grad is not None
    assert_close(own.grad, x.grad, "gradient of the input")
    wanted = renamed({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        assert_close(parameter.grad, wanted[name], name)
