"""Routers: which experts a token goes to."""

# A module's call returns Any; the forwards say what it is.
# And each kind of loss is a class of its own, under one name.
# mypy: disable-error-code="no-any-return, assignment"

from __future__ import annotations

import torch
from torch import Tensor, nn

from specc.runtime import (
    AuxLoss,
    Constant,
    ExpertLoad,
    GlobalAuxLoss,
    Jitter,
    Mesh,
    Normal,
    ParameterRecord,
    SequenceAuxLoss,
    ZLoss,
    declare,
    group_limited_topk,
    normalized,
    router_logits,
    within_capacity,
)

from .base import MegatronModule
from .config import ModelParallelConfig


class TopKRouter(MegatronModule):
    """Chooses each token's experts, and how much each of them counts.

    A bias, which has no gradient, evens out the choice. [if config.moe_router_enable_expert_bias]
    """

    def __init__(self, config: ModelParallelConfig, mesh: Mesh) -> None:
        super().__init__(config)
        assert config.num_moe_experts is not None
        self.mesh = mesh
        shape = (config.num_moe_experts, config.hidden_size)
        self.weight = nn.Parameter(torch.empty(shape))
        declare(self, "weight", ParameterRecord(shape, law=Normal(config.init_method_std)))
        if config.add_bias_linear:
            self.bias: nn.Parameter | None = nn.Parameter(torch.empty(config.num_moe_experts))
            declare(
                self,
                "bias",
                ParameterRecord((config.num_moe_experts,), law=Normal(config.init_method_std)),
            )
        else:
            self.bias = None
        if config.moe_router_enable_expert_bias:
            self.expert_bias = nn.Parameter(
                torch.empty(config.num_moe_experts), requires_grad=False
            )
            declare(
                self,
                "expert_bias",
                ParameterRecord((config.num_moe_experts,), law=Constant(0.0)),
            )
            self.load = ExpertLoad(config.num_moe_experts, config.moe_router_bias_update_rate)
        if config.moe_input_jitter_eps is not None:
            self.jitter = Jitter(config.moe_input_jitter_eps, mesh)
        if config.moe_z_loss_coeff is not None:
            self.z_loss = ZLoss(config.moe_z_loss_coeff, mesh)
        if config.moe_aux_loss_coeff > 0.0:
            if config.moe_router_load_balancing_type == "seq_aux_loss":
                self.aux_loss = SequenceAuxLoss(
                    config.moe_aux_loss_coeff, config.moe_router_topk, mesh
                )
            elif config.moe_router_load_balancing_type == "global_aux_loss":
                self.aux_loss = GlobalAuxLoss(
                    config.moe_aux_loss_coeff,
                    config.moe_router_topk,
                    config.num_moe_experts,
                    mesh,
                )
            else:
                self.aux_loss = AuxLoss(config.moe_aux_loss_coeff, config.moe_router_topk, mesh)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's probabilities and the numbers of its experts, both [b, t, k]."""
        if self.config.moe_input_jitter_eps is not None:
            x = self.jitter(x)
        if self.config.moe_router_dtype == "fp64":
            logits = router_logits(x, self.weight, self.bias, dtype=torch.float64)  # [b, t, e]
        else:
            logits = router_logits(x, self.weight, self.bias)  # [b, t, e], in float32
        if self.config.moe_z_loss_coeff is not None:
            logits = self.z_loss(logits)
        if self.config.moe_router_score_function == "sigmoid":
            scores = logits.sigmoid()
        elif self.config.moe_router_pre_softmax:
            scores = logits.softmax(-1)  # over all experts
        else:
            scores = logits
        # The bias has a say in the choice alone. [if self.config.moe_router_enable_expert_bias]
        ranked = scores + self.expert_bias if self.config.moe_router_enable_expert_bias else scores
        if self.config.moe_router_num_groups is not None:
            assert self.config.moe_router_group_topk is not None
            _, experts = group_limited_topk(
                ranked,
                self.config.moe_router_topk,
                self.config.moe_router_num_groups,
                self.config.moe_router_group_topk,
            )
        elif self.config.moe_router_enable_expert_bias:
            experts = ranked.topk(self.config.moe_router_topk).indices
        else:
            chosen, experts = ranked.topk(self.config.moe_router_topk)
        if (
            self.config.moe_router_enable_expert_bias
            or self.config.moe_router_num_groups is not None
        ):
            chosen = scores.gather(-1, experts)
        if self.config.moe_router_score_function == "sigmoid":
            probs = normalized(chosen)
        elif self.config.moe_router_pre_softmax:
            probs = chosen  # which do not sum to 1
        else:
            probs = chosen.softmax(-1)  # over the experts that are chosen
        if self.config.moe_router_topk_scaling_factor is not None:
            probs = probs * self.config.moe_router_topk_scaling_factor
        if self.config.moe_router_dtype == "fp64":
            probs = probs.float()
        if self.config.moe_expert_capacity_factor is not None:
            assert self.config.num_moe_experts is not None
            # An expert takes so many times its even share of the tokens; -1 for what is beyond.
            experts = within_capacity(
                probs,
                experts,
                self.config.num_moe_experts,
                self.config.moe_expert_capacity_factor,
                self.mesh,
                policy=self.config.moe_token_drop_policy,
            )
        if self.config.moe_aux_loss_coeff > 0.0:
            if self.config.moe_router_score_function == "sigmoid":
                scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
            elif not self.config.moe_router_pre_softmax:
                scores = logits.softmax(-1)
            # Joins the graph here; the loss that the model's forward returns is without it.
            probs = self.aux_loss(probs, scores)
        if self.config.moe_router_enable_expert_bias:
            self.load(experts)  # counted; the bias moves when the step ends
        return probs, experts
