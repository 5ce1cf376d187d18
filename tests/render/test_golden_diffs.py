"""`specc diff` of published models, each text read by hand against what their papers say.

tests/architecture/published has the specs, with a source for each number. `--update-golden` writes
the texts anew; each line of what changes then is to be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from published import compared, shown

from specc.compiler.render.json_form import json_diff
from specc.compiler.render.markdown import markdown_diff
from specc.compiler.render.screen import Screen
from specc.compiler.render.terminal import terminal_diff, terminal_show

GOLDEN = Path(__file__).parent / "golden"

# One worker compiles the models once for all of these, where pytest-xdist groups tests.
pytestmark = pytest.mark.xdist_group("published")

PAIRS = (
    ("gpt2_small", "gpt2_xl"),  # one architecture, two sizes
    ("gpt2_xl", "llama2_7b"),  # learned to rotary positions, GELU to SwiGLU, biases gone
    ("diy_gpt", "gpt2_small"),  # a user's own classes against the templates'
    ("llama2_7b", "llama3_8b"),  # MHA to GQA
    ("llama3_8b", "llama3_70b"),  # sizes alone
    ("llama3_70b", "llama31_70b"),  # rotary scaling alone
    ("mistral_7b", "llama3_8b"),  # a window
    ("qwen25_7b", "qwen3_8b"),  # biases of q, k, v to norms of q and k
    ("qwen3_06b", "qwen3_8b"),  # tied and untied
    ("llama3_8b", "gemma2_9b"),  # windows in turn, soft cap, four norms a layer
    ("qwen3_8b", "gpt_oss_20b"),  # sinks, windows in turn, YaRN
    ("llama2_7b", "olmo_7b"),  # norms without weights
    ("gpt2_small", "pythia_69b"),  # attention and MLP side by side
    ("llama2_7b", "nemotron4_15b"),  # squared ReLU, half of the channels rotary
    ("starcoder2_3b", "llama3_8b"),  # biases, window, dropout, another initial deviation
    ("phi3_mini", "mistral_7b"),
    ("mistral_7b", "mixtral_8x7b"),  # an MLP to experts
    ("mixtral_8x7b", "qwen3_30b_a3b"),  # more and smaller experts
    ("qwen3_30b_a3b", "deepseek_v3"),  # latent attention, dense layers, a shared expert
    ("llama3_8b", "nemotron_h"),  # a hybrid stack
)


SHOWN = ("llama3_8b", "gemma2_9b", "gpt2_small", "mixtral_8x7b", "deepseek_v3", "nemotron_h")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is the file's."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if pytestconfig.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return check


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_published_models(before: str, after: str, golden: Callable[[str, str], None]) -> None:
    text = terminal_diff(compared(before, after), Screen(100))
    golden(f"{before}-{after}.txt", text)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", SHOWN)
def test_one_model(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.txt", terminal_show(shown(name), Screen(100)))


def test_other_forms(golden: Callable[[str, str], None]) -> None:
    comparison = compared("llama2_7b", "llama3_8b")
    golden("llama2_7b-llama3_8b.md", markdown_diff(comparison))
    golden("llama2_7b-llama3_8b.json", json_diff(comparison))
    golden("llama2_7b-llama3_8b.all.txt", terminal_diff(comparison, Screen(100), everything=True))


def test_a_golden_text_belongs_to_a_test() -> None:
    pairs = {f"{before}-{after}" for before, after in PAIRS}
    assert {file.name.partition(".")[0] for file in GOLDEN.iterdir()} == {
        *pairs,
        *SHOWN,
    }
