"""Mixtral: Mistral with experts in every layer."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    NORMS,
    OUTER,
    SILU,
    attention_rows,
    common,
    layer,
    sizes,
    tied,
    windows,
)
from ..experts import expert_rows, router_losses
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from . import mistral

DEFAULTS = mistral.DEFAULTS | {
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
    "router_aux_loss_coef": 0.001,
    "router_jitter_noise": 0.0,
}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    window = f.optional_integer("sliding_window")
    config |= windows(window, [1] * config["num_layers"])
    config["num_moe_experts"] = f.integer("num_local_experts")
    config["moe_router_topk"] = f.integer("num_experts_per_tok")
    config |= router_losses(f)
    f.must_be("router_jitter_noise", 0.0, 0)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", "MoELayer"),
        rows=(
            *OUTER,
            *NORMS,
            *attention_rows(),
            *expert_rows("block_sparse_moe.", names=("w1", "w3", "w2")),
        ),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family(
    "mixtral", "Mixtral", ("MixtralForCausalLM",), DEFAULTS, read, limits="`router_jitter_noise`"
)
