"""What families with experts have in common."""

from __future__ import annotations

from typing import Any

from .decoder import LAYER, OURS, gated_mlp_rows
from .fields import Fields
from .tensors import Row, rows


def router_losses(f: Fields, name: str = "router_aux_loss_coef") -> dict[str, Any]:
    """The balancing loss, which Hugging Face's model adds where it returns router logits."""
    coefficient = f.number(name)
    return {"moe_aux_loss_coeff": coefficient} if coefficient else {}


def softmax_router(f: Fields) -> dict[str, Any]:
    """Softmax over all experts; scaled to a sum of 1 over the chosen ones, it is one over them."""
    found: dict[str, Any] = {"moe_router_topk": f.integer("num_experts_per_tok")}
    if not f.flag("norm_topk_prob"):
        found["moe_router_pre_softmax"] = True
    return found


def sigmoid_router(f: Fields) -> dict[str, Any]:
    """DeepSeek-V3's: sigmoid scores, a bias for the choice alone, perhaps groups of experts."""
    topk = f.integer("num_experts_per_tok")
    found: dict[str, Any] = {
        "moe_router_topk": topk,
        "moe_router_score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
    }
    f.must_be("norm_topk_prob", True)
    f.must_be("scoring_func", "sigmoid")
    f.must_be("topk_method", "noaux_tc")
    groups, seen = f.integer("n_group"), f.integer("topk_group")
    if groups > 1:
        # A group counts as much as its two best experts together.
        if topk != 2 * seen:
            f.refuse("topk_group", f"with {topk} experts for a token it has to be {topk / 2:g}")
        found |= {"moe_router_num_groups": groups, "moe_router_group_topk": seen}
    if f.number("routed_scaling_factor") != 1:
        found["moe_router_topk_scaling_factor"] = f.number("routed_scaling_factor")
    return found


def first_dense(config: dict[str, Any], count: int) -> dict[str, Any]:
    """`moe_layer_freq` where the first ``count`` layers have no experts."""
    layers = config["num_layers"]
    return layer_frequency([int(i >= count) for i in range(layers)])


def sparse_layers(f: Fields, config: dict[str, Any]) -> list[int]:
    """A 1 for each layer with experts: every n-th, and none of `mlp_only_layers`."""
    count, step = config["num_layers"], f.integer("decoder_sparse_step")
    dense = f.raw("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int and 0 <= i < count for i in dense):
        f.refuse("mlp_only_layers", f"it has to be a list of layers below {count}")
    return [int(i not in dense and (i + 1) % step == 0) for i in range(count)]


def layer_frequency(sparse: list[int]) -> dict[str, Any]:
    """`moe_layer_freq`, left out where every layer has experts."""
    return {} if all(sparse) else {"moe_layer_freq": tuple(sparse)}


def expert_rows(
    block: str = "mlp.",
    *,
    router: str = "gate",
    bias: str | None = None,
    bias_in_router: bool = True,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    layer: str = OURS,
) -> tuple[Row, ...]:
    """A router and experts, of which each has tensors of its own; ``layer``: our layer's name.

    ``bias``: the tensor that has a say in the choice alone, the router's or beside it.
    """
    found = [(f"{LAYER}{block}{router}.weight", f"{layer}mlp.router.weight")]
    if bias is not None:
        holder = f"{router}." if bias_in_router else ""
        found.append((f"{LAYER}{block}{holder}{bias}", f"{layer}mlp.router.expert_bias"))
    return (
        *rows(found),
        *gated_mlp_rows(f"{LAYER}{block}experts.#.", f"{layer}mlp.experts.", names=names),
    )


def shared_rows(name: str, gate: str | None = None, *, layer: str = OURS) -> tuple[Row, ...]:
    """An MLP for every token beside the experts, and the weight of its gate."""
    found = gated_mlp_rows(f"{LAYER}mlp.{name}.", f"{layer}mlp.shared_experts.")
    if gate is None:
        return found
    ours = f"{layer}mlp.shared_experts.gate_weight"
    return (*found, *rows([(f"{LAYER}mlp.{gate}.weight", ours)]))
