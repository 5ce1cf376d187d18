"""A page by hand: a stack of the templates' MoE layers, built by the interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from specc.runtime import (
    ColumnParallelLinear,
    Mesh,
    RMSNorm,
    VocabParallelEmbedding,
    linear_cross_entropy,
    materialize,
)
from specc.templates import ModuleSpec
from specc.templates.config import ModelParallelConfig
from specc.templates.moe import MoELayer

LOSS = "per_token"
LAYERS = "layers"
FIRST_STAGE = ("embedding",)
LAST_STAGE = ("norm", "head")

_EXPERTS = ModelParallelConfig(
    num_layers=8,
    hidden_size=32,
    num_attention_heads=4,
    vocab_size=131,
    max_position_embeddings=16,
    ffn_hidden_size=48,
    activation="swiglu",
    num_moe_experts=4,
    moe_router_topk=2,
    moe_ffn_hidden_size=24,
    moe_aux_loss_coeff=0.5,
    moe_z_loss_coeff=0.1,
)
# Mixtral's router, and DeepSeek-V3's with a shared expert and biases that even out the load.
KINDS = {
    0: _EXPERTS,
    1: replace(
        _EXPERTS,
        moe_router_score_function="sigmoid",
        moe_router_load_balancing_type="seq_aux_loss",
        moe_router_enable_expert_bias=True,
        moe_router_bias_update_rate=0.01,
        moe_shared_expert_intermediate_size=16,
    ),
    2: replace(_EXPERTS, moe_expert_capacity_factor=1.0),
}
KINDS[3] = replace(KINDS[1], moe_expert_capacity_factor=0.75)


@dataclass(frozen=True)
class Config:
    num_layers: int = 8
    hidden_size: int = 32
    vocab_size: int = 131
    num_moe_experts: int = 4
    moe_router_topk: int = 2
    kind: int = 0


class Layer(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, 1e-5)
        spec = ModuleSpec(MoELayer, params={"config": KINDS[config.kind]})
        self.mlp = spec.build_module(mesh=mesh)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.embedding = VocabParallelEmbedding(
            config.vocab_size, config.hidden_size, mesh, init_std=0.5
        )
        self.layers = nn.ModuleList([Layer(config, mesh) for _ in range(config.num_layers)])
        self.norm = RMSNorm(config.hidden_size, 1e-5)
        self.head = ColumnParallelLinear(
            config.hidden_size, config.vocab_size, mesh, pad=True, init_std=0.3
        )

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, hidden: Tensor | None = None
    ) -> Tensor:
        x = self.embedding(input_ids) if self.mesh.first_stage else hidden
        for layer in self.layers:
            x = layer(x)
        if not self.mesh.last_stage:
            return x
        return linear_cross_entropy(self.norm(x), self.head, labels, self.mesh)


def build_model(
    mesh: Mesh, config: Config = Config(), *, seed: int = 0, device: str = "cpu"
) -> Model:
    return materialize(lambda: Model(config, mesh), mesh, seed=seed, device=device)
