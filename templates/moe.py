"""A feed-forward half with experts, of which each token goes to a few."""

# A module's call returns Any; the forwards say what it is.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from specc.runtime import Mesh, all_tokens, combine, dispatch, expert_capacity, own_tokens

from .base import MegatronModule
from .config import ModelParallelConfig
from .experts import GroupedMLP
from .router import TopKRouter
from .shared_experts import SharedExpertMLP
from .spec import Node, build_module


@dataclass
class MoESubmodules:
    """The children of MoELayer; the shared experts are there where the config gives their width."""

    router: Node = TopKRouter
    experts: Node = GroupedMLP
    shared_experts: Node = SharedExpertMLP


class MoELayer(MegatronModule):
    """The feed-forward half of a layer: of its experts each token goes to `moe_router_topk`.

    And to the shared experts. [if config.moe_shared_expert_intermediate_size is not None]
    """

    def __init__(
        self, config: ModelParallelConfig, mesh: Mesh, *, submodules: MoESubmodules
    ) -> None:
        super().__init__(config)
        self.mesh = mesh
        self.router = build_module(submodules.router, config)
        self.experts = build_module(submodules.experts, config)
        if config.moe_shared_expert_intermediate_size is not None:
            self.shared_experts = build_module(submodules.shared_experts, config)

    def forward(self, x: Tensor) -> Tensor:
        assert self.config.num_moe_experts is not None
        tokens = own_tokens(x, self.mesh)  # those that no other rank of tp has
        probs, experts = self.router(tokens)  # [b, t, k]
        if self.config.moe_pad_expert_input_to_capacity:
            assert self.config.moe_expert_capacity_factor is not None
            capacity = expert_capacity(
                tokens,
                self.config.moe_router_topk,
                self.config.num_moe_experts,
                self.config.moe_expert_capacity_factor,
                self.mesh,
            )
        else:
            capacity = None
        # To the ranks of their experts, in the order of these.
        sent = dispatch(
            tokens, probs, experts, self.config.num_moe_experts, self.mesh, capacity=capacity
        )
        y = self.experts(sent.rows, sent.probs, sent.tokens_per_expert)
        y = all_tokens(combine(y, sent), x, self.mesh)  # back, summed over each token's experts
        if self.config.moe_shared_expert_intermediate_size is not None:
            if self.config.moe_shared_expert_gate:
                # One number for each token says how much the shared experts count.
                gate = F.linear(x, self.shared_experts.gate_weight.to(x.dtype))  # [b, t, 1]
                y = y + self.shared_experts(x) * gate.float().sigmoid().to(y.dtype)
            else:
                y = y + self.shared_experts(x)
        return y
