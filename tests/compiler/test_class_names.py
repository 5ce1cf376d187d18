"""Which of several classes of one author keeps its name on the page."""

from __future__ import annotations

import pytest
from moe_stack import stack

from specc.compiler.pipeline import compile_spec


@pytest.mark.parametrize("experts_first", [True, False])
def test_a_dense_layer_keeps_its_name_whichever_comes_first(experts_first: bool) -> None:
    body = compile_spec(stack([1, 0] if experts_first else [0, 1]), validate=False).body
    kinds = ["MoETransformerLayer", "TransformerLayer"]
    assert f"[{', '.join(kinds if experts_first else kinds[::-1])}]" in body
    dense = body[body.index("class TransformerLayer(") :].split("\nclass ")[0]
    assert "self.mlp = MLP(" in dense
