"""Title: the first lines of a page, derived from what was folded: what the model is, as a list of
facts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
from torch import nn

from specc.templates.hybrid_layers import AttentionLayer, MixerLayer, MLPLayer
from specc.templates.layer import TransformerLayer
from specc.templates.mlp import FeedForward
from specc.templates.moe import MoELayer
from specc.templates.multi_token_prediction import MultiTokenPredictionBlock
from specc.templates.shared_experts import SharedExpertMLP

from .facts import Facts
from .kinds import Kind
from .page_config import PageConfig
from .residual import Residual

_NORMS = ("norm", "input_layernorm", "pre_mlp_layernorm")


def title_and_facts(
    residuals: dict[Kind, Residual],
    names: dict[Kind, str],
    facts: Facts,
    page_config: PageConfig,
    template: str | None = None,
) -> tuple[str, list[str]]:
    """One sentence with the sizes, and a line for each choice that the text went by.

    `template` stands for the text of `facts.j2`.
    """
    root = facts.recording.root
    count = _short(sum(p.numel() for p in root.parameters()) - _further(root))
    ours = type(root).__module__.startswith("specc.templates")
    what = "A decoder" if ours else names[facts.kinds.root]
    config = facts.kinds.configs[0] if facts.kinds.configs else None
    if config is None or not type(config).__module__.startswith("specc.templates"):
        return f"{what} of {count} parameters.", []
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            Path(sys.modules["specc.templates"].__file__ or "").parent / "page"
        ),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    facts_template = (
        environment.get_template("facts.j2")
        if template is None
        else environment.from_string(template)
    )
    text = facts_template.render(
        c=config,
        used=facts.used_names | page_config.fields,
        reads=page_config.fields,
        what=what,
        count=count,
        active=_active(root),
        moe_layers=_moe_layers(root),
        dense=_dense(root),
        further=_short(_further(root)),
        norms=_norms(residuals),
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0], lines[1:]


def _active(root: nn.Module) -> str | None:
    """The parameters that one token uses, where they are not all: k of E of what experts hold."""
    every = sum(p.numel() for p in root.parameters()) - _further(root)
    resting = 0.0
    for moe in _moe_layers(root):
        held = sum(p.numel() for p in moe.experts.parameters())
        resting += held * (1 - moe.config.moe_router_topk / (moe.config.num_moe_experts or 1))
    return _short(round(every - resting)) if resting else None


def _moe_layers(root: nn.Module) -> list[MoELayer]:
    """Those with experts, but of what predicts further tokens."""
    further = {id(m) for block in _further_blocks(root) for m in block.modules()}
    found = (module for module in root.modules() if isinstance(module, MoELayer))
    return [module for module in found if id(module) not in further]


def _further(root: nn.Module) -> int:
    """The parameters of what predicts further tokens, in training alone."""
    return sum(p.numel() for block in _further_blocks(root) for p in block.parameters())


def _further_blocks(root: nn.Module) -> list[nn.Module]:
    return [m for m in root.modules() if isinstance(m, MultiTokenPredictionBlock)]


def _dense(root: nn.Module) -> bool:
    """Whether any feed-forward half of a layer is without experts."""
    own = (m for m in root.modules() if isinstance(m, FeedForward))
    return not _moe_layers(root) or any(not isinstance(m, SharedExpertMLP) for m in own)


def _short(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def _norms(residuals: dict[Kind, Residual]) -> list[str]:
    """Which norm stands before the halves of a layer, or before what a layer of a hybrid stack is,
    where the layers are ours.
    """
    found: dict[str, None] = {}
    alone: set[str] = set()
    words = {"RMSNorm": "RMS norm", "LayerNorm": "layer norm"}
    for kind in residuals:
        if not kind.cls.__module__.startswith("specc.templates"):
            continue
        layer = kind.instances[0]
        of = {n: type(m).__name__ for n, m in layer._modules.items() if n in _NORMS}
        if isinstance(layer, TransformerLayer):
            before = {of.get("input_layernorm"), of.get("pre_mlp_layernorm")}
            norm = before.pop() or ""
            if not before and norm in words:
                found[f"{words[norm]} before attention and before the MLP"] = None
        elif isinstance(layer, AttentionLayer | MLPLayer | MixerLayer):
            alone |= set(of.values())
    if len(alone) == 1 and (norm := alone.pop()) in words:
        found[f"{words[norm]} before each"] = None
    return list(found)
