"""The text of a spec file, as a person would write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .plan import Part, Plan, Written

WIDTH = 100


def spec_text(plan: Plan, name: str, title: str) -> str:
    """A Python file whose one root spec is called ``name``."""
    lines = [f'"""{title}"""', "", *_imports(plan), ""]
    lines += ["config = TransformerConfig("]
    lines += [f"    {field}={literal(value)}," for field, value in plan.config.items()]
    lines += [")", ""]
    for layer, part in _layers(plan).items():
        lines += [*_assigned(layer, part), ""]
    lines += _root(plan, name)
    return "\n".join(lines) + "\n"


def literal(value: Any) -> str:
    """A value's text; whole numbers that stand for floats lose their `.0`, patterns are short."""
    if isinstance(value, Written):
        return value.text
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float):
        return re.sub(r"e-0(\d)$", r"e-\1", repr(value))
    if isinstance(value, tuple) and len(value) > 8:
        return _pattern(value)
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _pattern(values: tuple[Any, ...]) -> str:
    """A long tuple as sums of repetitions: (0,) + (1,) * 27."""
    for period in range(1, min(len(values) // 2, 12) + 1):
        times, rest = divmod(len(values), period)
        unit = values[:period]
        if values == unit * times + unit[:rest]:
            text = f"{unit!r} * {times}"
            return f"{text} + {unit[:rest]!r}" if rest else text
    runs: list[tuple[Any, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    if len(runs) <= 4:
        return " + ".join(f"({v!r},) * {n}" if n > 1 else f"({v!r},)" for v, n in runs)
    return repr(values)


def _layers(plan: Plan) -> dict[str, Part]:
    """The kinds of layers, each by the name that the spec has for it."""
    named = {"layer": plan.layer, "moe_layer": plan.moe_layer}
    return {name: part for name, part in named.items() if part is not None} | dict(plan.stack)


def _imports(plan: Plan) -> list[str]:
    names = {"ModuleSpec", "TransformerConfig", "LanguageModelEmbedding", "OutputLayer"}
    names |= {"HybridModel", "HybridStack"} if plan.stack else {"GPTModel", "TransformerBlock"}
    for part in (*_layers(plan).values(), plan.final_norm):
        names |= set(_modules(part))
    # In the order of ruff's isort: constants, classes, the rest.
    ordered = sorted(names, key=lambda name: (not name.isupper(), name))
    return ["from specc.templates import (", *(f"    {name}," for name in ordered), ")"]


def _modules(part: Part) -> Iterator[str]:
    yield part.module
    for child in part.children.values():
        yield from _modules(child)


def _assigned(name: str, part: Part) -> list[str]:
    first, *rest = _spec(part, 0, 0)
    return [f"{name} = {first}", *rest]


def _spec(part: Part, indent: int, taken: int) -> list[str]:
    """The lines of ModuleSpec(...); ``taken``: what stands before it on its first line."""
    if not part.children:
        return [f"ModuleSpec({part.module})"]
    short = f"ModuleSpec({part.module}, submodules={_short(part.children)})"
    if len(short) + taken + 1 <= WIDTH and len(part.children) <= 2 and taken:
        return [short]
    pad = " " * (indent + 4)
    lines = ["ModuleSpec(", f"{pad}{part.module},", f"{pad}submodules={{"]
    for slot, child in part.children.items():
        key = f'{pad}    "{slot}": '
        first, *rest = _spec(child, indent + 8, len(key))
        lines += [key + first, *rest]
        lines[-1] += ","
    return [*lines, f"{pad}}},", f"{' ' * indent})"]


def _short(children: Mapping[str, Part]) -> str:
    parts = (f'"{slot}": {"".join(_spec(child, 0, 1))}' for slot, child in children.items())
    return "{" + ", ".join(parts) + "}"


def _root(plan: Plan, name: str) -> list[str]:
    return [
        f"{name} = ModuleSpec(",
        "    HybridModel," if plan.stack else "    GPTModel,",
        '    params={"config": config},',
        "    submodules={",
        '        "embedding": ModuleSpec(LanguageModelEmbedding),',
        '        "decoder": ModuleSpec(',
        *(_stack(plan) if plan.stack else _block(plan)),
        "        ),",
        '        "output_layer": ModuleSpec(OutputLayer),',
        "    },",
        ")",
    ]


def _block(plan: Plan) -> list[str]:
    params = '{"layer_spec": layer}'
    if plan.moe_layer is not None:
        params = '{"layer_spec": layer, "moe_layer_spec": moe_layer}'
    norm = "".join(_spec(plan.final_norm, 0, 1))
    return [
        "            TransformerBlock,",
        f"            params={params},",
        f'            submodules={{"final_layernorm": {norm}}},',
    ]


def _stack(plan: Plan) -> list[str]:
    norm = "".join(_spec(plan.final_norm, 0, 1))
    return [
        "            HybridStack,",
        "            submodules={",
        *(f'                "{slot}": {slot},' for slot in plan.stack),
        f'                "final_layernorm": {norm},',
        "            },",
    ]
