"""Merge: classes with the same text are one class, and every class gets its name.

A class keeps its author's name. Where one class of the author becomes several on the page, the
plainest keeps the name and each other is called by what sets it apart: a child (a `MoELayer` gives
`MoETransformerLayer`), an option (`ZeroCenteredRMSNorm`), or the place where it stands
(`FinalRMSNorm`). Never a number.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from specc.templates import IdentityOp
from specc.templates.diagnostic import Diagnostic

from . import tree
from .construct import config_handle
from .errors import span_of_class
from .facts import Facts
from .kinds import Kind
from .names import page_names
from .pattern import renewed
from .residual import Residual


def merge(residuals: dict[Kind, Residual], facts: Facts) -> dict[Kind, str]:
    """Unite equal classes in place; returns the name of each that is left, children first."""
    merged: dict[str, str] = {}  # handle -> handle of the class that it became
    by_text: dict[tuple[type, str], Kind] = {}
    for kind in list(residuals):
        residual = residuals[kind]
        if merged:
            _rename(residual, merged)
            _renew_patterns(residual, facts)
        text = _text(residual)
        if (kind.cls, text) in by_text and kind is not facts.kinds.root:
            merged[kind.handle] = by_text[(kind.cls, text)].handle
            del residuals[kind]
        else:
            by_text[(kind.cls, text)] = kind
    return _names(residuals, facts)


def _text(residual: Residual) -> str:
    lines = [] if residual.docstring is None else [residual.docstring]
    return "".join(tree.code(n) for n in [*lines, *residual.text()])


def _rename(residual: Residual, names: dict[str, str]) -> None:
    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, cst.Name) and node.value in names:
            return cst.Name(names[node.value])
        return None

    if residual.init is not None:
        residual.init = tree.replace(residual.init, swap)
    for name, method in residual.methods.items():
        residual.methods[name] = tree.replace(method, swap)


def _renew_patterns(residual: Residual, facts: Facts) -> None:
    if residual.init is not None and facts.patterns:
        residual.init = tree.replace(residual.init, lambda node: renewed(node, facts))


def rename(residuals: dict[Kind, Residual], names: dict[str, str]) -> None:
    for residual in residuals.values():
        _rename(residual, names)


# -------------------------------------------------------------------- names


def _names(residuals: dict[Kind, Residual], facts: Facts) -> dict[Kind, str]:
    names: dict[Kind, str] = {}
    taken = page_names(residuals, facts)
    of_name: dict[str, list[Kind]] = {}
    for kind in residuals:
        of_name.setdefault(kind.cls.__name__, []).append(kind)
    for kind in residuals:
        plain = kind.cls.__name__
        # The first of them, but for one with fewer kinds of parts: a dense layer, not the experts'.
        keeps = min(of_name[plain], key=_kinds_of_parts)
        candidates = [plain] if kind is keeps else []
        candidates += [f"{word}{plain}" for word in _words(kind, keeps, residuals, names, facts)]
        name = next((c for c in candidates if c not in taken), None)
        if name is None:
            name = f"{plain}{len(taken)}"
            facts.notes.append(
                Diagnostic(
                    "SP402",
                    f"`{plain}` becomes several classes that no option tells apart; one is called "
                    f"`{name}`",
                    span=span_of_class(kind.cls),
                    help="give the variants classes with names of their own",
                )
            )
        taken.add(name)
        names[kind] = name
    return names


def _kinds_of_parts(kind: Kind) -> int:
    return len({type(m) for m in kind.instances[0].modules()} - {IdentityOp})


def _words(
    kind: Kind, first: Kind, residuals: dict[Kind, Residual], names: dict[Kind, str], facts: Facts
) -> list[str]:
    """What sets a kind apart from the first of its name, best word first."""
    words: list[str] = []
    mine, theirs = kind.instances[0], first.instances[0]
    for child_name, child in mine.named_children():
        other = theirs._modules.get(child_name)
        if isinstance(child, IdentityOp) is not isinstance(other, IdentityOp):
            words.append(
                f"No{camel(child_name)}" if isinstance(child, IdentityOp) else camel(child_name)
            )
        elif other is not None and type(child) is not type(other):
            words.append(_prefix(type(child).__name__, type(other).__name__))
        own = facts.kinds.of(child)
        if (
            own in names
            and names[own] != own.cls.__name__
            and names[own].endswith(own.cls.__name__)
        ):
            words.append(names[own].removesuffix(own.cls.__name__))
        if other is None:
            words.append(camel(child_name))
    left, right = kind.built[0].arguments, first.built[0].arguments
    for name in left:
        a, b = left[name], right.get(name)
        if isinstance(a, (bool, str)) or a is None or b is None:
            words += _option_word(name, a, b)
    configs = [
        (v, right.get(k))
        for k, v in left.items()
        if k in right and hasattr(v, "__dataclass_fields__")
    ]
    for a, b in configs:
        asked = _attributes(kind, facts)
        for field in (f for f in getattr(a, "__dataclass_fields__", {}) if f in asked):
            words += _option_word(field, getattr(a, field), getattr(b, field, None))
    words.append(_role(kind, facts))
    return [w for w in words if w]


def _attributes(kind: Kind, facts: Facts) -> set[str]:
    """The names after a dot in a class as its author wrote it: an option among them makes a
    difference.
    """
    methods = facts.flat(kind).methods.values()
    nodes = [m.node for m in methods] + [m.node for m in facts.flat(kind)._inits.values()]
    return {i.attr.value for n in nodes for i in tree.walk(n) if isinstance(i, cst.Attribute)}


def _option_word(name: str, mine: Any, theirs: Any) -> list[str]:
    if mine == theirs or isinstance(mine, dict):
        return []
    if mine is True:
        return [camel(name)]
    if mine is False:
        return ["No" + camel(name)]
    if isinstance(mine, str) and mine.isidentifier():
        return [camel(mine)]
    if mine is None:
        return ["No" + camel(name)]
    return [camel(name)] if theirs is None else []


def _prefix(mine: str, theirs: str) -> str:
    """`MoE` for MoELayer against MLP: the child's name without the words that say only that it is a
    module.
    """
    word = re.sub(r"(Layer|Module|Block)$", "", mine)
    common = 0
    while common < min(len(word), len(theirs)) and word[-1 - common] == theirs[-1 - common]:
        common += 1
    tail = re.search(r"[A-Z][a-z0-9]*$", word)
    if tail and common >= len(tail.group()) and tail.start() > 0:
        return word[: tail.start()]
    return word


def _role(kind: Kind, facts: Facts) -> str:
    """The attribute under which it stands in the model, in capitals: `FinalLayernorm`."""
    for path, module in facts.recording.root.named_modules():
        if module is kind.instances[0]:
            parts = [p for p in path.split(".") if not p.isdigit()]
            return camel(parts[-1]) if parts else ""
    return ""


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)


def config_names(facts: Facts) -> dict[str, str]:
    """The page's name for each config: `Config`, others by the class that has one first."""
    names: dict[str, str] = {}
    taken = {"Config"}
    for index in range(1, len(facts.kinds.configs)):
        owner = next(
            (
                kind
                for kind in reversed(facts.kinds.kinds)
                for value in kind.built[0].arguments.values()
                if hasattr(value, "__dataclass_fields__") and value == facts.kinds.configs[index]
            ),
            None,
        )
        base = camel(_role(owner, facts)) or owner.cls.__name__ if owner is not None else "Other"
        name = f"{base}Config"
        while name in taken:
            name = f"Inner{name}"
        taken.add(name)
        names[config_handle(index)] = name
    return names
