"""Runs Megatron-Core's own GPTModel with experts on CPU, as megatron_oracle.py does.

`python megatron_moe_oracle.py OUT` writes each case's weights, loss and gradients.
"""

from __future__ import annotations

import sys
from typing import Any

import megatron_oracle  # before torch: it says how torch is imported
import torch
import torch.distributed as dist
import torch.nn.functional as F
from moe_routers import EXACT, EXPERTS, LENGTH, ROUTERS, SIZES, VOCABULARY, doubles


def build(router: dict[str, Any]) -> torch.nn.Module:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        **SIZES,
        **router,
        num_moe_experts=EXPERTS,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        use_cpu_initialization=True,
        transformer_impl="local",
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=F.silu,
        moe_token_dispatcher_type="allgather",
        moe_router_dtype="fp32",
    )
    layer = get_gpt_layer_local_spec(
        num_experts=EXPERTS, moe_grouped_gemm=False, normalization="RMSNorm"
    )
    model: torch.nn.Module = GPTModel(
        config=config,
        transformer_layer_spec=layer,
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        position_embedding_type="rope",
    )
    with torch.no_grad():  # norms and biases off their start, and logits apart
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        for name, buffer in model.named_buffers():
            if name.endswith("expert_bias"):
                buffer.copy_(torch.randn(EXPERTS) * 0.1)
    return model


def run(router: dict[str, Any], *, exact: bool = False) -> dict[str, Any]:
    torch.manual_seed(1)
    model = build(router)
    if exact:
        model.double()
        for module in model.modules():
            config = getattr(module, "config", None)
            if config is not None:
                config.params_dtype, config.moe_router_dtype = torch.float64, "fp64"
    text = torch.randint(0, VOCABULARY, (2, LENGTH + 1))
    ids, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    places = torch.arange(LENGTH).expand(2, -1)
    mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)[None, None]
    loss = model(ids, places, mask, labels=labels)
    loss.sum().backward()
    biases = {n: b.clone() for n, b in model.named_buffers() if n.endswith("expert_bias")}
    return {
        "ids": ids,
        "labels": labels,
        "loss": loss.detach(),
        "weights": {n: p.detach() for n, p in model.named_parameters()} | biases,
        # An expert without a token has no gradient there.
        "gradients": {
            n: torch.zeros_like(p) if p.grad is None else p.grad
            for n, p in model.named_parameters()
        },
    }


def main(out: str) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel()
    megatron_oracle.bend_to_cpu()
    results = {name: run(router) for name, router in ROUTERS.items()}
    with doubles():
        results |= {f"{name}, exact": run(ROUTERS[name], exact=True) for name in EXACT}
    torch.save(results, out)


if __name__ == "__main__":
    main(sys.argv[1])
