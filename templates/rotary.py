"""How a spec says that positions are rotary."""

from __future__ import annotations

import sys
from typing import Any

from .config import ModelParallelConfig
from .diagnostic import Span, call_span

ROTARY_FIELDS = (
    "rotary_base",
    "rotary_percent",
    "rotary_interleaved",
    "rope_scaling",
    "rope_scaling_factor",
    "rope_scaling_low_freq_factor",
    "rope_scaling_high_freq_factor",
    "rope_scaling_original_max_position_embeddings",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_mscale",
    "yarn_mscale_all_dim",
    "yarn_truncate",
)


class RotaryPositionalEmbedding:
    """Rotary positions as a spec hands them to an embedding layer.

    It stands for no module: given to a LanguageModelEmbedding, it makes attention rotary under the
    nearest parent that both share, and TransformerBlock makes the tables. `fields` holds the config
    fields that it decides: those of `ROTARY_FIELDS`, from `config` where they are not given here;
    `set_fields` names those that the user chose.

    Raises TypeError for a field that is none of them, or where there is neither a config nor a
    field.
    """

    def __init__(
        self,
        config: ModelParallelConfig | None = None,
        *,
        kv_channels: int | None = None,
        **fields: Any,
    ) -> None:
        unknown = sorted(fields.keys() - set(ROTARY_FIELDS))
        if unknown:
            raise TypeError(
                f"RotaryPositionalEmbedding has no field {', '.join(unknown)}; it takes config, "
                f"kv_channels, {', '.join(ROTARY_FIELDS)}"
            )
        if config is None and kv_channels is None and not fields:
            raise TypeError(
                "RotaryPositionalEmbedding needs a config, or the numbers of the rotation, as "
                "rotary_base=10000.0"
            )
        self.kv_channels = kv_channels
        self.fields = {} if config is None else {n: getattr(config, n) for n in ROTARY_FIELDS}
        self.fields.update(fields)
        self.set_fields = frozenset(fields)
        if config is not None:
            self.set_fields |= config._set_fields & set(ROTARY_FIELDS)
        self.span: Span | None = call_span(
            sys._getframe(1), frozenset({__file__}), width=len(type(self).__name__)
        )
