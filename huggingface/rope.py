"""Rotary positions of a config: the base, and a scaling with all that stands in it."""

from __future__ import annotations

from typing import Any

from .fields import Fields

_NUMBERS = {
    "linear": {"factor"},
    "llama3": {
        "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
    },
    "yarn": {
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
        "beta_slow", "mscale", "mscale_all_dim", "truncate",
    },
}  # fmt: skip


def rope(f: Fields, *, base: str = "rope_theta") -> dict[str, Any]:
    """The rotary fields of TransformerConfig; those with the templates' default are left out.

    Newer files hold base and scaling together in `rope_parameters`. Raises Refusal for a scaling
    that the templates lack.
    """
    scaling = f.raw("rope_scaling")
    theta = None
    if "rope_parameters" in f:
        scaling = dict(f.raw("rope_parameters"))
        theta = scaling.pop("rope_theta", None)
    if theta is None:
        theta = f.number(base)
    f.harmless(base)
    found: dict[str, Any] = {"position_embedding_type": "rope"}
    if theta != 10000:
        found["rotary_base"] = theta
    if scaling is not None:
        field = "rope_parameters" if "rope_parameters" in f else "rope_scaling"
        if not isinstance(scaling, dict):
            f.refuse(field, "it has to be an object or null")
        found |= _scaling(f, field, dict(scaling))
    return found


def _scaling(f: Fields, field: str, scaling: dict[str, Any]) -> dict[str, Any]:
    named = {scaling.pop(key) for key in ("rope_type", "type") if key in scaling}
    kind = named.pop() if len(named) == 1 else None
    if kind == "default":
        if scaling:
            f.refuse(field, f"the rope type `default` has no use for {', '.join(scaling)}")
        return {}
    if kind not in _NUMBERS:
        f.refuse(field, f"supported rope types are default, {', '.join(_NUMBERS)}")
    unknown = sorted(scaling.keys() - _NUMBERS[kind])
    if unknown:
        f.refuse(field, f"the rope type `{kind}` has no use for `{unknown[0]}`")
    factor = scaling.get("factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 1:
        f.refuse(field, "its `factor` has to be a number of at least 1")
    found: dict[str, Any] = {"rope_scaling": kind, "rope_scaling_factor": factor}
    if kind == "linear":
        return found
    length = scaling.get("original_max_position_embeddings")
    if length is None and kind == "yarn":
        length = f.integer("max_position_embeddings")
    numbers: dict[str, Any] = {"rope_scaling_original_max_position_embeddings": length}
    if kind == "llama3":
        numbers["rope_scaling_low_freq_factor"] = scaling.get("low_freq_factor")
        numbers["rope_scaling_high_freq_factor"] = scaling.get("high_freq_factor")
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            f.refuse(field, f"its `{name.removeprefix('rope_scaling_')}` has to be a number")
        if (name, value) not in _DEFAULTS:
            found[name] = value
    return found | (_yarn(f, field, scaling) if kind == "yarn" else {})


# The templates' own values, which a spec need not repeat.
_DEFAULTS = {("rope_scaling_low_freq_factor", 1.0), ("rope_scaling_high_freq_factor", 4.0)}


def _yarn(f: Fields, field: str, scaling: dict[str, Any]) -> dict[str, Any]:
    if scaling.get("attention_factor") is not None:
        f.refuse(field, "an `attention_factor` of its own is not supported, only what follows "
                 "from `factor`, `mscale` and `mscale_all_dim`")  # fmt: skip
    found: dict[str, Any] = {}
    for name, default in (("beta_fast", 32), ("beta_slow", 1)):
        value = scaling.get(name) or default
        if value != default:
            found[f"yarn_{name}"] = value
    # Hugging Face takes the two only together.
    both = (scaling.get("mscale"), scaling.get("mscale_all_dim"))
    if all(both):
        found |= {"yarn_mscale": both[0], "yarn_mscale_all_dim": both[1]}
    if scaling.get("truncate", True) is False:
        found["yarn_truncate"] = False
    return found
