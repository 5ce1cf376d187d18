"""Reads a config.json into a model of ours, and writes that as a spec file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specc.runtime.refusal import Refusal
from specc.templates import TransformerConfig
from specc.templates.config import ConfigError

from .beyond import beyond
from .families import FAMILIES
from .fields import Fields, shown
from .layouts import Numbers
from .plan import Imported, Written
from .tensors import Table


def read_config(values: Mapping[str, Any]) -> Imported:
    """The model that a config.json describes.

    Raises Refusal for an unknown family, and for a field that specc cannot do, does not know or
    cannot read: with its name and its value.
    """
    kind = values.get("model_type")
    if kind is None:
        raise Refusal("The config has no `model_type`, so it does not say which family it is of.")
    if kind not in FAMILIES:
        missing = beyond(values)
        if missing is not None:
            name, why = missing
            raise Refusal(
                f"The config of this {kind!r} model: `{name}` is {shown(values[name])}; {why}."
            )
        raise Refusal(
            f"`model_type` is {kind!r}, a family that specc does not know. It knows "
            f"{', '.join(sorted(FAMILIES))}."
        )
    family = FAMILIES[kind]
    fields = Fields(values, family.title, family.defaults)
    classes = values.get("architectures") or []
    if not set(classes) <= set(family.architectures):
        fields.refuse("architectures", f"supported is {' or '.join(family.architectures)}")
    plan = family.read(fields)
    fields.finish()
    try:
        values = {n: float(v) if isinstance(v, Written) else v for n, v in plan.config.items()}
        config = TransformerConfig(**values)
    except ConfigError as error:
        found = "; ".join(diagnostic.message for diagnostic in error.diagnostics)
        raise Refusal(f"The config of this {family.title} model fits no model: {found}.") from None
    heads, groups = config.num_attention_heads, config.query_groups
    numbers = Numbers(heads, groups, config.head_dim, **plan.mixer)
    return Imported(family, plan, config, Table(plan.rows, numbers, plan.tied, plan.ignored))


def python_name(text: str) -> str:
    """A model's name as Python may have it: Meta-Llama-3-8B -> meta_llama_3_8b."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")
    return f"model_{name}" if not name or name[0].isdigit() else name
