"""The tone of a diagnostic: lower case, no full stop, names in backticks, a message of one line.

`tone_of_messages` holds it for every diagnostic that is made while a test runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from specc.templates.diagnostic import Diagnostic

# Words that have a capital of their own.
PROPER = re.compile(r"(YAML|Python|Megatron|PyTorch|GitHub|LOSS|IdentityOp|ModuleSpec|Config)\b")
BARE_NAME = re.compile(r"(?<![`\w./=:-])([a-z]+_[a-z_]+|[A-Z][a-z]+[A-Z]\w+)(?![\w`(./=:-])")
SPOKEN = {"ModuleSpec", "IdentityOp", "PyTorch", "GitHub", "FILE", "TransformerConfig"}


def faults(text: str) -> list[str]:
    """What is wrong with a message, a label or a help; names of a message are in backticks."""
    found = []
    if not text.strip() or text != text.strip():
        found.append("empty, or blanks around it")
    if re.match(r"[A-Z]", text) and not PROPER.match(text):
        found.append("begins with a capital")
    if re.search(r"(?<!\.)\.$", text):
        found.append("ends with a full stop")
    if "!" in re.sub(r"`[^`]*`", "", text):
        found.append("has an exclamation mark")
    if text.count("`") % 2:
        found.append("a backtick is left open")
    return found


def faults_of(diagnostic: Diagnostic) -> list[str]:
    texts = [diagnostic.message, *(label for _, label in diagnostic.also)]
    texts += [text for text in (diagnostic.label, diagnostic.help) if text]
    found = [f"{diagnostic.code}: {fault}: {text!r}" for text in texts for fault in faults(text)]
    if "\n" in diagnostic.message:
        found.append(f"{diagnostic.code}: a message of several lines: {diagnostic.message!r}")
    bare = {m[1] for m in BARE_NAME.finditer(re.sub(r"`[^`]*`|'[^']*'", "", diagnostic.message))}
    if bare - SPOKEN:
        found.append(f"{diagnostic.code}: names without backticks: {sorted(bare - SPOKEN)}")
    return found


@pytest.fixture(autouse=True)
def tone_of_messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Diagnostic]]:
    """Gives the diagnostics that were made, and fails the test where one has another tone."""
    made: list[Diagnostic] = []
    original = Diagnostic.__init__

    def init(self: Diagnostic, *args: Any, **fields: Any) -> None:
        original(self, *args, **fields)
        made.append(self)

    monkeypatch.setattr(Diagnostic, "__init__", init)
    yield made
    found = [fault for diagnostic in dict.fromkeys(made) for fault in faults_of(diagnostic)]
    assert not found, "\n".join(found)
