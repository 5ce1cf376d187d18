"""Runs Megatron-Core's own GPTModel on CPU and keeps its weights, logits, loss and gradients.

`python megatron_oracle.py OUT` writes a file of the results of every case, in a process of its own
since Megatron-Core has no CPU path and is bent to one here:

- it names its allocation device by torch.cuda.current_device(), which is made to answer "cpu";
- its generators for dropout are CUDA's: the tracker's variant for inference takes their place;
- weights come from the CPU path (use_cpu_initialization); masks are given, since its own are made
  with device="cuda", the sliding window's included; fused paths are off.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

os.environ["TORCH_COMPILE_DISABLE"] = "1"  # read when torch is imported
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from typing import Any  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402

VOCABULARY, LENGTH = 61, 12

ROPE = {"position_embedding_type": "rope"}
SWIGLU = {"gated_linear_unit": True, "activation_func": F.silu}
LLAMA = {"normalization": "RMSNorm", "num_query_groups": 2, **SWIGLU}


def squared_relu(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


# The config's fields, then GPTModel's own arguments.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt": ({"add_bias_linear": True}, {"share_embeddings_and_output_weights": True}),
    "llama": (LLAMA, ROPE),
    "qkv bias": ({**LLAMA, "add_qkv_bias": True}, ROPE),
    "qk norm": ({**LLAMA, "qk_layernorm": True, "kv_channels": 12}, ROPE),
    "gate": ({**LLAMA, "attention_output_gate": True}, ROPE),
    "geglu": ({"gated_linear_unit": True, "activation_func": F.gelu}, {}),
    "squared relu": ({"activation_func": squared_relu}, {}),
    "rope percent": ({}, {**ROPE, "rotary_percent": 0.5, "rotary_base": 500}),
    "rope interleaved": ({"rotary_interleaved": True}, ROPE),
    "rope llama3": ({}, {**ROPE, "rope_scaling": True, "rope_scaling_factor": 4.0}),
    "window": ({"window_size": (3, 0), "window_attn_skip_freq": 2}, ROPE),
    "window pattern": ({"window_size": (3, 0), "window_attn_skip_freq": [0, 1]}, ROPE),
    "sinks": ({"softmax_type": "learnable"}, ROPE),
    "off by one": ({"softmax_type": "off-by-one"}, ROPE),
    "softmax scale": ({"softmax_scale": 0.05}, ROPE),
}


def bend_to_cpu() -> None:
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    from megatron.core.fusions import fused_softmax
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils

    random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    if not hasattr(moe_utils, "te_general_gemm"):  # tested without being defined
        moe_utils.te_general_gemm = None

    def window_mask(rows: int, columns: int, window: tuple[int, int]) -> torch.Tensor:
        ones = torch.ones(rows, columns, dtype=torch.bool)
        seen = torch.triu(ones, diagonal=columns - rows - window[0])
        return ~torch.tril(seen, diagonal=columns - rows + window[1])

    fused_softmax.get_sliding_window_causal_mask = window_mask  # the same, without device="cuda"


def build(fields: dict[str, Any], arguments: dict[str, Any]) -> torch.nn.Module:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    defaults = {
        "num_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "ffn_hidden_size": 48,
        "add_bias_linear": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "bias_activation_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False,
        "persist_layer_norm": False,
        "use_cpu_initialization": True,
        "params_dtype": torch.float32,
        "transformer_impl": "local",
    }
    config = TransformerConfig(**{**defaults, **fields})
    layer = get_gpt_layer_local_spec(
        qk_layernorm=config.qk_layernorm, normalization=config.normalization
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=layer,
        vocab_size=VOCABULARY,
        max_sequence_length=16,
        **{"position_embedding_type": "learned_absolute", **arguments},
    )


def run(fields: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    model = build(fields, arguments)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    text = torch.randint(0, VOCABULARY, (2, LENGTH + 1))
    ids, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    places = torch.arange(LENGTH).expand(2, -1).contiguous()
    barred = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)[None, None]
    logits = model(ids, places, barred)
    loss = model(ids, places, barred, labels=labels)  # [b, s]
    loss.sum().backward()
    named = dict(model.named_parameters())
    return {
        "ids": ids,
        "labels": labels,
        "weights": {name: p.detach().clone() for name, p in named.items()},
        "logits": logits.detach(),
        "loss": loss.detach(),
        "gradients": {name: p.grad for name, p in named.items() if p.grad is not None},
    }


def main(out: str) -> None:
    torch.set_num_threads(1)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel()
    bend_to_cpu()
    results = {name: run(*case) for name, case in CASES.items()}
    torch.save(results, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
