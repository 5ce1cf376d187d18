"""Where a pipeline may cut an author's class: found by data flow, or refused with the line."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from specc.compiler.stages import Stages, cut
from specc.runtime import Mesh

HEAD = """
import torch
from torch import Tensor, nn

from specc.runtime import Mesh


class Block(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor | None = None, start: Tensor | None = None) -> Tensor:
        return x + self.up(x)


class Stack(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.inner = nn.LayerNorm(8)
        self.layers = nn.ModuleList([Block(mesh) for _ in range(3)])
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Net(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.scale = 2.0
        self.table = nn.Embedding(16, 8)
        self.layers = nn.ModuleList([Block(mesh) for _ in range(3)])
        self.head = nn.Linear(8, 16)
"""


def cut_of(forward: str, text: str = HEAD) -> tuple[str, Stages]:
    text += "\n" + textwrap.indent(textwrap.dedent(forward), "    ")
    space: dict[str, Any] = {}
    exec(text, space)
    written, stages = cut(text, space["Net"](Mesh.single()), "Net")
    assert stages is not None
    return written, stages


def forward_of(text: str) -> str:
    return textwrap.dedent(text[text.rindex("    def forward") :])


def test_scaled_embeddings() -> None:
    written, stages = cut_of("""
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
            mask = torch.ones_like(input_ids)  # of the tokens alone: every stage has it
            # Looked up.
            x = self.table(input_ids)
            x = x * self.scale
            for layer in self.layers:
                x = layer(x, mask)
            logits = self.head(x)
            return logits
        """)
    assert (stages.layers, stages.first, stages.last) == (("layers",), ("table",), ("head",))
    assert forward_of(written) == textwrap.dedent("""\
        def forward(self, input_ids: Tensor, labels: Tensor | None = None, HIDDEN) -> Tensor:
            mask = torch.ones_like(input_ids)  # of the tokens alone: every stage has it
            if self.mesh.first_stage:
                # Looked up.
                x = self.table(input_ids)
                x = x * self.scale
            else:
                x = hidden
            for layer in self.layers:
                x = layer(x, mask)
            if not self.mesh.last_stage:
                return x
            logits = self.head(x)
            return logits
        """).replace("HIDDEN", "hidden: Tensor | None = None")
    assert "        self.mesh = mesh\n" in written[written.index("class Net") :]


def test_a_stack_inside_with_a_norm_of_its_own() -> None:
    text = HEAD.replace(
        "        self.layers = nn.ModuleList([Block(mesh) for _ in range(3)])\n        self.head",
        "        self.stack = Stack(mesh)\n        self.head",
    )
    written, stages = cut_of(
        """
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
            x = self.stack(self.table(input_ids))
            return self.head(x)
        """,
        text,
    )
    assert stages.layers == ("stack.layers",)
    assert stages.first == ("table", "stack.inner") and stages.last == ("stack.norm", "head")
    assert "    x = self.table(input_ids) if self.mesh.first_stage else hidden\n" in written
    assert "    x = self.stack(x)\n    if not self.mesh.last_stage:\n" in forward_of(written)
    inner = written[written.index("class Stack") : written.index("class Net")]
    assert "        if self.mesh.first_stage:\n            x = self.inner(x)\n        for" in inner
    assert "        if not self.mesh.last_stage:\n            return x\n" in inner


REFUSED = {
    "a residual around the stack": (
        """
        def forward(self, input_ids, labels=None):
            start = self.table(input_ids) * self.scale
            x = start
            for layer in self.layers:
                x = layer(x)
            return self.head(x + start)
        """,
        "`start`, made before the layers, is read after them",
        "return self.head(x + start)",
    ),
    "an embedding that every layer sees": (
        """
        def forward(self, input_ids, labels=None):
            x = start = self.table(input_ids)
            for layer in self.layers:
                x = layer(x, None, start)
            return self.head(x)
        """,
        "`start` is given to the layers beside what they work on",
        "for layer in self.layers:\n    x = layer(x, None, start)",
    ),
    "labels before the layers": (
        """
        def forward(self, input_ids, labels=None):
            wanted = labels is not None
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x) if wanted else x
        """,
        "the labels are read before the layers",
        "wanted = labels is not None",
    ),
    "an early return": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            if input_ids.shape[1] == 1:
                return self.head(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)
        """,
        "forward may return before the layers",
        "if input_ids.shape[1] == 1:\n    return self.head(x)",
    ),
    "layers by their numbers": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            for i, layer in enumerate(self.layers):
                x = layer(x) * i
            return self.head(x)
        """,
        "the layers are not run as `for layer in self.layers: x = layer(x, ...)`",
        "for i, layer in enumerate(self.layers):\n    x = layer(x) * i",
    ),
    "each layer's output kept": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            kept = []
            for layer in self.layers:
                x = layer(x)
                kept.append(x)
            return self.head(sum(kept))
        """,
        "the layers are not run as `for layer in self.layers: x = layer(x, ...)`",
        "for layer in self.layers:\n    x = layer(x)\n    kept.append(x)",
    ),
    "a value kept on the module": (
        """
        def forward(self, input_ids, labels=None):
            self.start = self.table(input_ids)
            x = self.start
            for layer in self.layers:
                x = layer(x)
            return self.head(x + self.start)
        """,
        "forward writes to self.start",
        "self.start",
    ),
    "filled in place before, read after": (
        """
        def forward(self, input_ids, labels=None):
            seen = torch.zeros(1)
            x = self.table(input_ids)
            seen.add_(x.sum())
            for layer in self.layers:
                x = layer(x)
            return self.head(x) + seen
        """,
        "`seen`, made before the layers, is read after them",
        "return self.head(x) + seen",
    ),
    "a list filled before, read after": (
        """
        def forward(self, input_ids, labels=None):
            seen = []
            x = self.table(input_ids)
            seen.append(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x + sum(seen))
        """,
        "`seen`, made before the layers, is read after them",
        "return self.head(x + sum(seen))",
    ),
    "a list that the layers fill": (
        """
        def forward(self, input_ids, labels=None):
            seen = []
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x, seen)
            return self.head(x + len(seen))
        """,
        "`seen`, made before the layers, is read after them",
        "return self.head(x + len(seen))",
    ),
    "all of its parameters": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x) + sum(p.sum() for p in self.parameters())
        """,
        "forward uses a method of its own, parameters",
        "self.parameters",
    ),
    "a draw": (
        """
        def forward(self, input_ids, labels=None):
            noise = torch.rand(8)
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x, noise)
            return self.head(x)
        """,
        "`noise` is given to the layers beside what they work on",
        "for layer in self.layers:\n    x = layer(x, noise)",
    ),
    "the shape of what later stages do not have yet": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            n = x.shape[1]
            x = x[:, 1:]
            for layer in self.layers:
                x = layer(x, n)
            return self.head(x)
        """,
        "`n` is given to the layers beside what they work on",
        "for layer in self.layers:\n    x = layer(x, n)",
    ),
    "a layer around a layer": (
        """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(layer(x))
            return self.head(x)
        """,
        "a layer is given more than what the one before it gave",
        "for layer in self.layers:\n    x = layer(layer(x))",
    ),
    "the table used at both ends": (
        """
        def forward(self, input_ids, labels=None):
            x = input_ids
            for layer in self.layers:
                x = layer(x)
            return self.head(self.table(x))
        """,
        "what the layers are given comes from no parameter of the first stage",
        "for layer in self.layers:\n    x = layer(x)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_crosses_is_refused_with_its_line(what: str) -> None:
    forward, reason, statement = REFUSED[what]
    written, stages = cut_of(forward)
    assert stages.reason == reason and stages.statement == statement
    assert stages.first == stages.last == ()
    assert "first_stage" not in written  # the text stays as it is


def test_a_parameter_of_no_stage_is_refused() -> None:
    text = HEAD.replace("self.scale = 2.0", "self.bias = nn.Parameter(torch.zeros(8))")
    forward = """
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)
        """
    _, stages = cut_of(forward, text)
    assert stages.reason == "parameter bias belongs to no one stage"


def test_a_table_used_at_both_ends_is_on_both_stages() -> None:
    _, stages = cut_of("""
        def forward(self, input_ids, labels=None):
            x = self.table(input_ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x + self.table(input_ids))
        """)
    assert stages.first == ("table",) and stages.last == ("head", "table")
