"""The text for a terminal: columns, colours, characters."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hand_made import comparison, decoder, model

from specc.compiler.architecture.figure import Figure
from specc.compiler.render.code_lines import code_lines
from specc.compiler.render.model import Comparison
from specc.compiler.render.screen import Screen
from specc.compiler.render.terminal import terminal_diff, terminal_show

CODE = code_lines("class A:\n    x = 1\n", "class A:\n    x = 2  # größer\n")


@pytest.fixture(scope="module")
def changed() -> Comparison:
    after = decoder(hidden=128, layers=6, attention=(("window", 16),), name="large")
    return comparison(decoder(), after, CODE)


def test_a_difference(changed: Comparison) -> None:
    assert terminal_diff(changed, Screen(80)) == """\
small → large                  3 of 14 parts are the same, 9 differ only in size

~ model                   hidden 64 → 128                               +768,064
~   decoder.layers[0..5]  4 → 6 layers                              +86,144 each
~     self_attention      GQA 4/2 heads of 16 → 32                       +36,864
                          full attention → window 16

                            small      large
  parameters              374,336    1.142 M  +205.2 %
    KV cache per token  256 bytes  256 bytes      same  in bfloat16

@@ -1 +1 @@ class A
 class A:
-    x = 1
+    x = 2  # größer
"""


def test_no_line_is_wider_than_the_screen_and_nothing_is_lost(changed: Comparison) -> None:
    words = set(terminal_diff(changed, Screen(200)).replace(";", "").split())
    for width in (60, 80, 100):
        text = terminal_diff(changed, Screen(width))
        assert max(map(len, text.splitlines())) <= width
        if width == 60:  # words are cut
            continue
        assert words <= set(text.replace(";", "").split())


def test_a_narrow_screen_cuts_no_number(changed: Comparison) -> None:
    text = terminal_diff(changed, Screen(60))
    told = ("+768,064", "+86,144 each", "374,336", "1.142 M", "+205.2 %", "256 bytes", "bfloat16")
    for number in told:
        assert number in text


def test_colour_is_all_that_colour_adds(changed: Comparison) -> None:
    plain = terminal_diff(changed, Screen(80))
    coloured = terminal_diff(changed, Screen(80, colour=True))
    assert "\x1b[" in coloured and "\x1b" not in plain
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()


def test_ascii_alone(changed: Comparison) -> None:
    text = terminal_diff(changed, Screen(80, ascii=True))
    tree, _, _ = text.partition("@@")
    assert tree.isascii()
    assert "small -> large" in tree
    # The columns are those of the characters that stand there.
    assert len({len(line) for line in tree.splitlines() if line.endswith("each")}) <= 1


def test_the_same_architecture_in_other_words() -> None:
    same = comparison(decoder(), decoder(name="other"), CODE)
    assert terminal_diff(same, Screen(60)) == """\
small → other                          the same architecture

@@ -1 +1 @@ class A
 class A:
-    x = 1
+    x = 2  # größer
"""


def test_one_model() -> None:
    assert terminal_show(model(decoder()), Screen(80)) == """\
small                                                              small_spec.py

  model                             hidden 64, vocabulary 1000           374,336
    embedding                       LanguageModelEmbedding                64,000
      word_embeddings               vocabulary 1000 × 64                  64,000
    decoder                         TransformerBlock                     246,336
      layers[0..3]                  4 layers                         61,568 each
        input_layernorm             RMSNorm                                   64
        self_attention              GQA 4/2 heads of 16                   12,288
        pre_mlp_layernorm           RMSNorm                                   64
        mlp                         SwiGLU 256                            49,152
      final_layernorm               RMSNorm                                   64
    output_layer                    64 → vocabulary 1000                  64,000
    config.max_position_embeddings  512

  parameters              374,336
    KV cache per token  256 bytes  in bfloat16
"""


def test_steps_stand_below_a_part_as_wide_as_the_screen() -> None:
    before = decoder(mlp_steps=("return linear_fc2(linear_fc1(x))",))
    after = decoder(mlp_steps=("return 2.0 * linear_fc2(linear_fc1(x))",), name="double")
    text = terminal_diff(comparison(before, after), Screen(80))
    assert text.split("\n\n")[1].splitlines()[1:] == [
        "~   decoder.layers[0..3].mlp  forward: +1 -1 steps",
        "        -return linear_fc2(linear_fc1(x))",
        "        +return 2.0 * linear_fc2(linear_fc1(x))",
    ]


def test_a_figure_that_is_not_known_has_its_reason() -> None:
    known = model(decoder())
    unknown = Figure("flops", "FLOPs", None, "FLOPs", note="a kernel of its own")
    text = terminal_show(replace(known, figures=(unknown,)), Screen(80))
    assert text.splitlines()[-1] == "  FLOPs  -  a kernel of its own"


def test_a_page_has_no_say_over_the_terminal() -> None:
    code = code_lines("x = 1\n", "x = 1  # \x1b[2J\x07\u202e\n\ty = [bold]2[/bold]\n")
    text = terminal_diff(comparison(decoder(), decoder(name="a\x1b[31m"), code), Screen(80))
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "+    y = [bold]2[/bold]\n" in text
