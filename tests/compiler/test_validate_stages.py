"""Wrong cuts planted in pages that are right as a whole: each is caught by running the stages."""

from __future__ import annotations

import pytest
from test_validate_planted import prepared, small_text, text_of

from specc.compiler.validate import ValidationError
from specc.compiler.validate.numbers import compare_numbers
from specc.compiler.validate.page_module import page_module

LAST = "        if not self.mesh.last_stage:\n            return x\n"
NORM = "        return self.final_layernorm(x)\n"
# What is changed and what is said: only a model that is cut has another number by it.
PLANTED = {
    "what later stages are given": ("else hidden", "else hidden * 1.01", "the model's output"),
    "what a stage hands on": (
        LAST + NORM,
        LAST.replace("return x", "return x + 1") + NORM,
        "the model's output",
    ),
    "a gradient that stops": (
        "else hidden",
        "else hidden.detach()",
        "stage 2 reads nothing of what it is handed",
    ),
    "a gradient alone": (
        "else hidden",
        "else 2 * hidden - hidden.detach()",
        "another number for the gradient of `",
    ),
    "a norm on every stage": (LAST + NORM, NORM, "final_layernorm"),
    "a part of no stage": (', "output_layer")', ",)", "output_layer.weight belongs to no stage"),
    "a part of the other end": (
        'FIRST_STAGE = ("embedding",)',
        'FIRST_STAGE = ("embedding", "output_layer")',
        "",
    ),
}  # fmt: skip


def said(old: str, new: str) -> str:
    recompile, text = small_text("llama"), text_of("llama")
    assert text.count(old) == 1
    with page_module(text.replace(old, new)) as page:
        try:
            notes = compare_numbers(
                prepared("llama").spec,
                text.replace(old, new),
                page,
                lambda spec: recompile(spec).replace(old, new),
            )
        except ValidationError as error:
            (diagnostic,) = error.diagnostics
            assert diagnostic.code == "SP506" and diagnostic.help is not None
            return diagnostic.message
    assert not notes
    return ""


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_cut_is_caught(what: str) -> None:
    """The last one is no mistake: a part that both ends hold has both ends' gradients."""
    old, new, sentence = PLANTED[what]
    message = said(old, new)
    assert sentence in message and bool(message) is bool(sentence)
