"""The first lines of a page: what the model is, said once and by what it has."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "generated_examples"


def facts_of(name: str) -> str:
    """The docstring of a page up to its shapes, on one line."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    return " ".join(text.split('"""')[1].partition("Shapes:")[0].split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # No MLP stands beside experts that are everywhere.
        ("mixtral", "8 SwiGLU experts, 14336 wide; each token goes to 2, and uses 12.88 B"),
        ("deepseek_v3", "A decoder of 671.03 B parameters: 61 layers"),
        ("deepseek_v3", "- SwiGLU, 18432 wide -"),
        ("deepseek_v3", "256 experts, 2048 wide, in 58 of the layers; each token goes to 8"),
        ("deepseek_v3", "uses 37.55 B parameters"),
        ("deepseek_v3", "keys and values from 512 numbers of a token, queries from 1536"),
        ("deepseek_v3", "predicts 1 further token at each place, by 11.61 B more parameters"),
        ("nemotron_h", "layers: 24 of Mamba-2, 24 of an MLP, 4 of attention"),
        ("nemotron_h", "Mamba-2: 128 heads of 64, states of 128, 8 groups"),
        ("nemotron_h", "- no positions -"),
        ("llama", "RMS norm before attention and before the MLP"),
    ],
)
def test_a_page_says_what_its_model_is(name: str, said: str) -> None:
    assert said in facts_of(name)


@pytest.mark.parametrize("name", ["mixtral", "nemotron_h", "deepseek_v3", "llama", "small"])
def test_no_line_is_longer_than_a_page_is_wide(name: str) -> None:
    lines = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 100
