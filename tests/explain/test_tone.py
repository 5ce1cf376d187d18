"""The tone of every message in the sources, and what counts as a fault."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tone import faults, faults_of

from specc.templates.diagnostic import Diagnostic

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"SP\d{3}")


def texts(node: ast.expr) -> Iterator[str]:
    """The strings that an expression may come to; what is filled in stands as `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(v.value if isinstance(v, ast.Constant) else "x" for v in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def messages() -> Iterator[tuple[str, str]]:
    """Where a diagnostic is made, and each of its texts."""
    for folder in ("templates", "compiler"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield from _texts_of(node, f"{path.relative_to(ROOT)}:{node.lineno}")


def _texts_of(call: ast.Call, place: str) -> Iterator[tuple[str, str]]:
    codes = [n for n, a in enumerate(call.args) if isinstance(a, ast.Constant)]
    code = next((n for n in codes if CODE.fullmatch(str(call.args[n].value))), None)  # type: ignore[attr-defined]
    if code is None:
        return
    helped = [k.value for k in call.keywords if k.arg in ("help", "label")]
    for text in (t for n in [*call.args[code + 1 :], *helped] for t in texts(n)):
        if text:
            yield f"{place} ({call.args[code].value})", text  # type: ignore[attr-defined]


def test_every_message_in_the_sources_has_the_tone() -> None:
    texts = list(messages())
    found = [f"{place}: {f}: {text!r}" for place, text in texts for f in faults(text)]
    assert not found, "\n".join(found)
    assert len(texts) > 200


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The config is wrong", "begins with a capital"),
        ("the config is wrong.", "ends with a full stop"),
        ("no such class!", "has an exclamation mark"),
        ("`MLP has no child", "a backtick is left open"),
        (" two", "empty, or blanks around it"),
    ],
)
def test_a_fault_is_found(text: str, fault: str) -> None:
    assert faults(text) == [fault]


@pytest.mark.parametrize(
    "text", ["`MLP` is no class", "YAML is read", "write TransformerConfig(a=1, ...)", "`!!` is it"]
)
def test_what_is_none_is_not(text: str) -> None:
    assert faults(text) == []


def test_bare_names_and_lines_are_found(tone_of_messages: list[Diagnostic]) -> None:
    (fault,) = faults_of(Diagnostic("SP9", "the class TransformerLayer has no self_attn"))
    assert fault.endswith("names without backticks: ['TransformerLayer', 'self_attn']")
    assert faults_of(Diagnostic("SP9", "`a_b` and `ReLU`, `--set x_y=1`, f.py:a_b")) == []
    assert "several lines" in faults_of(Diagnostic("SP9", "one\ntwo"))[0]
    tone_of_messages.clear()  # these were to be wrong
