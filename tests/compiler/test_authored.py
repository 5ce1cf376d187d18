"""Which code on a page is its author's: what its header names, and a first launch verifies."""

from __future__ import annotations

from pathlib import Path

import pytest

from specc.compiler.generate import generate
from specc.compiler.header import split_page
from specc.compiler.target import parse_target
from specc.runtime.verified import authored

EXAMPLES = Path(__file__).parents[2] / "generated_examples"

SPEC = """
import torch
from torch import nn
from specc.templates import ModuleSpec

def halved(x):
    return x / 2

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(halved(x)) + torch.ones(4)

spec = ModuleSpec(Outer)
"""


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("llama_spec.py:llama", ()),
        ("diy_gpt_spec.py:diy_simple_gpt_spec", ("DiySimpleGPTModel",)),
        ("own_spec.py:spec", ("halved", "Outer")),
    ],
)
def test_header_of_a_page(tmp_path: Path, target: str, names: tuple[str, ...]) -> None:
    (tmp_path / "own_spec.py").write_text(SPEC)
    folder = tmp_path if target.startswith("own") else EXAMPLES
    page = generate(parse_target(target, folder), validate=False).page(tmp_path / "page.py")
    parsed = split_page(page)
    assert parsed is not None and parsed[0].authored == names
    assert authored(page) == bool(names)  # the runtime reads it without the compiler
