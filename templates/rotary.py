"""How a spec says that positions are rotary."""

from __future__ import annotations

import sys
from typing import Any

from .config import ModelParallelConfig
from .diagnostic import Diagnostic, Span, SpecError, call_span, suggestion

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


class RotaryError(SpecError, TypeError):
    """A rotary object that says nothing, or something that no rotation has."""


class RotaryPositionalEmbedding:
    """Rotary positions as a spec hands them to an embedding layer.

    It stands for no module: given to a LanguageModelEmbedding, it makes attention rotary under the
    nearest parent that both share, and TransformerBlock makes the tables. `fields` holds the config
    fields that it decides: those of `ROTARY_FIELDS`, from `config` where they are not given here;
    `set_fields` names those that the user chose.

    Raises RotaryError for a field that is none of them (SP122), or where there is neither a config
    nor a field (SP129).
    """

    def __init__(
        self,
        config: ModelParallelConfig | None = None,
        *,
        kv_channels: int | None = None,
        **fields: Any,
    ) -> None:
        self.span: Span | None = call_span(
            sys._getframe(1), frozenset({__file__}), width=len(type(self).__name__)
        )
        known = ("config", "kv_channels", *ROTARY_FIELDS)
        found = [
            Diagnostic(
                "SP122",
                f"`RotaryPositionalEmbedding` has no field `{name}`",
                span=self.span,
                help=suggestion(name, known, "it"),
            )
            for name in sorted(fields.keys() - set(ROTARY_FIELDS))
        ]
        if config is None and kv_channels is None and not fields:
            message = "`RotaryPositionalEmbedding` needs a config, or the numbers of the rotation"
            help = "pass config=config, or a number, as rotary_base=10000.0"
            found.append(Diagnostic("SP129", message, span=self.span, help=help))
        if found:
            raise RotaryError(found)
        self.kv_channels = kv_channels
        self.fields = {} if config is None else {n: getattr(config, n) for n in ROTARY_FIELDS}
        self.fields.update(fields)
        self.set_fields = frozenset(fields)
        if config is not None:
            self.set_fields |= config._set_fields & set(ROTARY_FIELDS)
