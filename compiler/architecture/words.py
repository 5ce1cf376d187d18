"""What a part is, in the words of the field: one short phrase for every renderer."""

from __future__ import annotations

from .tree import Part, Value

_OF_ROUTER = ("coefficient", "rate", "epsilon")  # what its losses and counts have one of

# Facts that make up one phrase together, by kind of part.
HEADLINE: dict[str, tuple[str, ...]] = {
    "attention": (
        *("heads", "groups", "head_dim", "value_dim"),
        *("latent", "shared", "query_latent"),
    ),
    "mixer": ("type", "heads", "value_dim", "groups", "key_dim"),
    "mlp": ("experts", "activation", "size"),
    "moe": ("experts", "topk", "activation", "size"),
    "router": ("scores",),
    "router part": ("type", *_OF_ROUTER),
    "loss": ("type", "coefficient"),
    "norm": ("type", "zero_centered"),
    "linear": ("experts", "in", "out"),
    "convolution": ("channels", "kernel"),
    "embedding": ("vocabulary", "positions", "rows", "size"),
    "output": ("vocabulary", "size"),
    "activation": ("type",),
    "dropout": ("p",),
    "module": ("type",),
}

_MODEL = ("hidden", "vocabulary")  # said together, compared one by one

# What goes without saying where a part is named and nothing is compared.
_UNSAID = {("causal", True), ("bias", False), ("gather_output", True), ("epsilon", 1e-5)}
_UNSAID_NAMES = {("*", "init"), ("*", "loss"), ("norm", "size")}
_UNSAID_NAMES |= {("router", "topk"), ("router part", "topk")}  # said of the experts

_CUTS: dict[Value, str] = {None: "whole on every rank", 0: "cut by rows", 1: "cut by columns"}
_ABSENT = {
    ("*", "window"): "full attention",
    ("*", "rotary"): "no rotary positions",
    ("*", "softcap"): "no soft cap",
    ("*", "sinks"): "no sinks",
    ("*", "scale"): "scores by 1/√d",
    ("*", "dropout"): "no dropout",
    ("*", "tied"): "untied",
    ("*", "init"): "its constructor's own initial values",
    ("*", "gather_output"): "output not gathered",
    ("*", "frozen"): "trained",
    ("*", "padded"): "not padded",
    ("*", "drops"): "none dropped",
    ("*", "runs"): "always",
    ("router", "groups"): "from any group",
    ("router", "expert_bias"): "chosen by scores alone",
}


def words(part: Part) -> str:
    """What a part is: "GQA 32/8 heads of 128, rotary base 500,000, window 4096". May be empty."""
    first = _MODEL if part.kind == "model" else HEADLINE.get(part.kind, ())
    found = [headline(part)]
    for name, value in part.facts:
        said = name in first or name.startswith(("init ", "buffer "))
        unsaid = {("*", name), (part.kind, name)} & _UNSAID_NAMES or (name, value) in _UNSAID
        if not said and not unsaid:
            found.append(phrase(part.kind, name, value))
    return ", ".join(text for text in found if text)


def headline(part: Part) -> str:
    """The phrase that the facts of `HEADLINE` make: "SwiGLU 14336"; for layers how many."""
    facts = dict(part.facts)
    if part.kind == "attention":
        return _heads(facts)
    if part.kind == "mixer":
        return _mixer(facts)
    if part.kind == "mlp":
        experts = f"{facts['experts']} × " if "experts" in facts else ""
        return experts + _joined(facts.get("activation"), facts.get("size"))
    if part.kind == "moe":
        return _of_experts(facts)
    if part.kind == "router":
        return str(facts.get("scores"))
    if part.kind in ("router part", "loss"):
        by = next((f" × {number(facts[n])}" for n in _OF_ROUTER if n in facts), "")
        return f"{facts.get('type')}{by}"
    if part.kind == "norm":
        centred = " (1 + weight)" if facts.get("zero_centered") else ""
        return f"{facts.get('type')}{centred}"
    if part.kind == "linear":
        experts = f"{facts['experts']} × " if "experts" in facts else ""
        return f"{experts}{facts.get('in')} → {facts.get('out')}"
    if part.kind == "convolution":
        return f"convolution of {facts.get('channels')} channels over {facts.get('kernel')} places"
    if part.kind == "embedding":
        what = next((n for n in ("vocabulary", "positions") if n in facts), "rows")
        return f"{what} {facts.get(what)} × {facts.get('size')}"
    if part.kind == "output":
        return f"{facts.get('size')} → vocabulary {facts.get('vocabulary')}"
    if part.kind == "model":
        return ", ".join(f"{name} {facts[name]}" for name in _MODEL if name in facts)
    if part.kind == "dropout":
        return f"dropout {number(facts.get('p'))}"
    if part.kind == "layer" and part.times > 1:
        return f"{part.times} layers"
    return str(facts.get("type") or "")


def phrase(kind: str, name: str, value: Value) -> str:
    """One fact of a part of a kind, or what its absence (None) means: "window 4096"."""
    shown = name.replace("_", " ")
    if name.startswith("cut "):
        return f"`{name[4:]}` {_CUTS.get(value, str(value))}"
    if name.startswith("tied "):
        return f"`{name[5:]}` is `{value}`" if value else f"`{name[5:]}` untied"
    if name == "calls":
        if value == 0:
            return "not called"
        return f"called {value} times" if value else "called once"
    if name.startswith("buffer "):
        return f"buffer `{name[7:]}` computed as {value}" if value else f"no buffer `{name[7:]}`"
    if name.startswith("dtype "):
        return f"`{name[6:]}` {value or 'float32'}"
    if name == "places":
        return f"at {value}"
    if value is None:
        return _ABSENT.get((kind, name)) or _ABSENT.get(("*", name), f"no {shown}")
    if name == "init" or name.startswith("init "):
        what = name.removeprefix("init").strip()
        return f"starts as {value}" if not what else f"`{what}` starts as {value}"
    if name == "rotary" and isinstance(value, tuple):
        return _rotary(dict(str(text).split("=", 1) for text in value))
    if name == "sinks":
        return "sinks" if value == "learned" else "a sink of zero" if value == "zero" else "sinks"
    if name == "groups" and isinstance(value, tuple):
        return f"from {value[0]} of {value[1]} groups"
    if name == "expert_bias":
        return "chosen by a bias too"
    if name == "topk":
        return f"top {value}"
    if name == "runs":
        return str(value)
    if name == "padded":
        return "padded to their capacity"
    if name == "scaling":
        return f"times {number(value)}"
    if name == "capacity":
        return f"at most {number(value)} times an even share"
    if name == "drops":
        return {"probs": "the least likely dropped", "position": "the last dropped"}[str(value)]
    if name == "softcap":
        return f"soft cap {number(value)}"
    if name == "scale":
        return f"scores by {number(value)}"
    if name == "p":
        return f"dropout {number(value)}"
    if value is True:
        return shown
    if value is False:
        return f"not {shown}" if name in ("causal",) else f"no {shown}"
    if isinstance(value, tuple):
        return f"{shown} {', '.join(number(v) for v in value)}"
    return f"{shown} {number(value)}"


def number(value: object) -> str:
    """A number as a reader writes it: whole floats in thousands, small ones as 1e-5."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) >= 1000:
            return f"{int(value):,}"
        if value.is_integer():
            return str(int(value))
        text = f"{value:.6g}"
        base, e, power = text.partition("e")
        return f"{base}e{int(power)}" if e else text
    return str(value)


def _heads(facts: dict[str, Value]) -> str:
    heads, groups, size = facts.get("heads"), facts.get("groups"), facts.get("head_dim")
    if heads is None:
        return "attention"
    values = facts.get("value_dim")
    of = f"{size}" if values is None else f"{size}, values of {values}"
    if facts.get("latent") is not None:
        return f"MLA {heads} heads of {of}, {_latents(facts)}"
    if groups is None or groups == heads:
        return f"MHA {heads} heads of {of}" if heads != 1 else f"1 head of {of}"
    if groups == 1:
        return f"MQA {heads}/1 heads of {of}"
    return f"GQA {heads}/{groups} heads of {of}"


def _mixer(facts: dict[str, Value]) -> str:
    """`Mamba-2 128 heads of 64, states of 128 in 8 groups`."""
    heads = f"{facts['type']} {facts['heads']} heads of {facts['value_dim']}"
    if facts["type"] == "Mamba-2":
        return f"{heads}, states of {facts['key_dim']} in {facts['groups']} groups"
    return f"{heads}, {facts['groups']} keys of {facts['key_dim']}"


def _latents(facts: dict[str, Value]) -> str:
    """What keys, values and queries are made of: channels of a token."""
    shared, queries = facts.get("shared"), facts.get("query_latent")
    text = f"from a latent of {facts['latent']}"
    text += f" and {shared} shared channels" if shared is not None else ""
    return text + (f", queries from one of {queries}" if queries is not None else "")


def whole_words(part: Part) -> str:
    """`words` of a part that stands alone: of experts also how they are chosen, and what every
    token goes to beside them.
    """
    if part.kind == "router":
        return ", ".join(filter(None, (words(part), *(words(child) for child in part.children))))
    if part.kind != "moe":
        return words(part)
    shared = [f"shared {words(c)}" for c in part.children if c.kind == "mlp" and not _dealt_out(c)]
    routers = [whole_words(child) for child in part.children if child.kind == "router"]
    return ", ".join((words(part), *shared, *routers))


def _dealt_out(part: Part) -> bool:
    """Whether a part is the experts that a router deals tokens out to."""
    return part.fact("experts") is not None


def _of_experts(facts: dict[str, Value]) -> str:
    """`2 of 8 experts, each SwiGLU 14336`; those of all tokens are said by their own part."""
    text = f"{facts.get('topk')} of {facts.get('experts')} experts"
    each = _joined(facts.get("activation"), facts.get("size"))
    return f"{text}, each {each}" if each else text


def _rotary(facts: dict[str, str]) -> str:
    text = f"rotary base {number(float(facts['base']))}" if "base" in facts else "rotary"
    if "dim" in facts:
        text += f" on {facts['dim']} channels"
    if "scaling" in facts:
        others = {n: v for n, v in facts.items() if n not in ("base", "dim", "scaling", "pairs")}
        text += f", {facts['scaling']} scaling"
        if others:
            text += (
                " ("
                + ", ".join(f"{n.replace('_', ' ')} {_plain(v)}" for n, v in others.items())
                + ")"
            )
    if facts.get("pairs") == "interleaved":
        text += ", interleaved"
    return text


def _plain(text: str) -> str:
    """A number in text as `number` writes it; what is none stays."""
    try:
        return number(float(text)) if "." in text or "e" in text else text
    except ValueError:
        return text


def _joined(*values: object) -> str:
    return " ".join(number(value) for value in values if value is not None)
