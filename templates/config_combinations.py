"""Which fields of a config go together: sizes, scalings of rotary positions, windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .config_hybrid import hybrid_mistakes
from .config_mla import latent_mistakes
from .config_moe import expert_mistakes
from .config_mtp import further_token_mistakes
from .config_rotary import local_base_mistakes

if TYPE_CHECKING:
    from .config import ModelParallelConfig

Mistake = tuple[str, str, str]  # the diagnostic's code, what is wrong, what would be right

_SCALING_NUMBERS = {  # what each rule has to be told
    "linear": ("rope_scaling_factor",),
    "llama3": ("rope_scaling_factor", "rope_scaling_original_max_position_embeddings"),
    "yarn": ("rope_scaling_factor", "rope_scaling_original_max_position_embeddings"),
}
_YARN_FIELDS = (
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_mscale",
    "yarn_mscale_all_dim",
    "yarn_truncate",
)
_SCALING_FIELDS = {  # those that only make sense under some scaling, and under which
    "rope_scaling_factor": ("linear", "llama3", "yarn"),
    "rope_scaling_low_freq_factor": ("llama3",),
    "rope_scaling_high_freq_factor": ("llama3",),
    "rope_scaling_original_max_position_embeddings": ("llama3", "yarn"),
    **dict.fromkeys(_YARN_FIELDS, ("yarn",)),
}


def combination_mistakes(config: ModelParallelConfig) -> Iterator[Mistake]:
    """All that does not fit, in the order in which it is told."""
    yield from _size_mistakes(config)
    for message, help in expert_mistakes(config):
        yield "SP164", message, help
    for message, help in latent_mistakes(config):
        yield "SP165", message, help
    for message, help in further_token_mistakes(config):
        yield "SP166", message, help
    for message, help in hybrid_mistakes(config):
        yield "SP167", message, help
    for message, help in local_base_mistakes(config):
        yield "SP168", message, help
    yield from _scaling_mistakes(config)
    yield from _window_mistakes(config)


def _size_mistakes(config: ModelParallelConfig) -> Iterator[Mistake]:
    heads, groups = config.num_attention_heads, config.query_groups
    fits = True
    latent = config.multi_latent_attention  # whose heads have sizes of their own
    if config.kv_channels is None and config.hidden_size % heads and not latent:
        fits = False
        yield (
            "SP156",
            f"`hidden_size`={config.hidden_size} does not divide into "
            f"`num_attention_heads`={heads}",
            "make it a multiple, or set `kv_channels`, the channels of a head",
        )
    if heads % groups:
        fits = False
        yield (
            "SP157",
            f"`num_attention_heads`={heads} does not divide into `num_query_groups`={groups}",
            "every key/value head serves the same number of query heads",
        )
    if config.position_embedding_type == "rope" and fits and not latent and config.rotary_dim % 2:
        yield (
            "SP158",
            f"rotary positions turn channels in pairs, and {config.rotary_dim} of "
            f"{config.head_dim} channels of a head would be turned",
            "choose `kv_channels` and `rotary_percent` so that their product is even",
        )


def _scaling_mistakes(config: ModelParallelConfig) -> Iterator[Mistake]:
    rule = config.rope_scaling
    for name in _SCALING_NUMBERS.get(rule or "", ()):
        if name not in config._set_fields:
            yield "SP159", f"`rope_scaling`={rule!r} needs `{name}`", f"pass `{name}`"
    for name, rules in _SCALING_FIELDS.items():
        if rule not in rules and name in config._set_fields:
            yield (
                "SP160",
                f"`{name}` is set and `rope_scaling` is {rule!r}, which has no use for it",
                f"set `rope_scaling` to {' or '.join(map(repr, rules))}",
            )
    low, high = config.rope_scaling_low_freq_factor, config.rope_scaling_high_freq_factor
    if rule == "llama3" and high <= low:
        yield _order_mistake("rope_scaling_high_freq_factor", high, low)
    if rule == "yarn" and config.yarn_beta_fast < config.yarn_beta_slow:
        yield _order_mistake("yarn_beta_fast", config.yarn_beta_fast, config.yarn_beta_slow)


def _order_mistake(name: str, value: float, least: float) -> Mistake:
    other = name.replace("high", "low").replace("fast", "slow")
    return (
        "SP161",
        f"`{name}`={value} is not above `{other}`={least}",
        f"make `{name}` the larger one",
    )


def _window_mistakes(config: ModelParallelConfig) -> Iterator[Mistake]:
    pattern = config.window_attn_skip_freq
    one_each = "give one entry for each layer: 1 for the window, 0 for everything"
    if pattern is None:
        return
    if config.window_size is None:
        yield (
            "SP162",
            "`window_attn_skip_freq` says which layers have a window, and `window_size` is None",
            "set `window_size`, or leave both out",
        )
    elif isinstance(pattern, int):
        return
    elif len(pattern) != config.num_layers:
        yield (
            "SP163",
            f"`window_attn_skip_freq` has {len(pattern)} entries and `num_layers` is "
            f"{config.num_layers}",
            one_each,
        )
    elif any(entry not in (0, 1) for entry in pattern):
        yield "SP163", f"`window_attn_skip_freq` is {pattern}", one_each
