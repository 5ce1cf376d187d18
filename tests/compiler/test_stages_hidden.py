"""What an author's forward may hide from a reader of its data flow: refused, or cut right."""

from __future__ import annotations

import textwrap

import pytest
import torch
from test_stages import HEAD, cut_of

from specc.compiler.stages import Stages
from specc.compiler.validate.page_module import page_module
from specc.runtime import Mesh

NET = HEAD + """\
        self.seen, self.rope = [], torch.linspace(0.5, 1.0, 8)
        self.drop, self.parts = nn.Dropout(0.5), [self.table]
"""

START = "x = self.table(input_ids)\n"
LOOP = "for layer in self.layers:\n    x = layer(x)\n"
# The body of forward, and why it is not cut.
REFUSED = {
    "a value kept on a class": (
        f"{START}Net.start = x\n{LOOP}return self.head(x + Net.start)",
        "`Net`, made before the layers, is read after them",
    ),
    "a list of the module's that layers fill": (
        f"{START}for layer in self.layers:\n    x = layer(x, self.seen)\n"
        "return self.head(x * len(self.seen))",
        "`self.seen` is given to the layers, which may fill it, and read after",
    ),
    "parts behind a list": (
        f"{START}{LOOP}return self.head(x + self.parts[0](input_ids))",
        "self.parts keeps parts of the model",
    ),
    "a property": (
        f"width = self.width\n{START}for layer in self.layers:\n    x = layer(x, width)\n"
        "return self.head(x)",
        "forward reads a property of its own, width",
    ),
    "a function that reads later": (
        f"def first():\n    return start\nstart = self.table(input_ids)\nx = start * 2\n{LOOP}"
        "return self.head(x + first())",
        "a function inside of forward reads what the first stage makes",
    ),
    "a function made of what is first": (
        f"{START}def first():\n    return self.table(input_ids)\n{LOOP}"
        "return self.head(x + first())",
        "`first`, made before the layers, is read after them",
    ),
    "a dropout of the mask": (
        f"mask = self.drop(torch.ones(8))\n{START}for layer in self.layers:\n"
        "    x = layer(x, mask)\nreturn self.head(x)",
        "`mask` is given to the layers beside what they work on",
    ),
    "a function of another module": (
        f"mask = textwrap.noise(8)\n{START}for layer in self.layers:\n    x = layer(x, mask)\n"
        "return self.head(x)",
        "`mask` is given to the layers beside what they work on",
    ),
    "labels among further arguments": (
        f"wanted = len(more)\n{START}{LOOP}return self.head(x) * wanted",
        "`more`, which may hold the labels, is read before the layers have run",
    ),
    "arguments by a star": (
        f"{START}for layer in self.layers:\n    x = layer(*[x])\nreturn self.head(x)",
        "what the layers are given is not written out",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_hidden_is_refused(what: str) -> None:
    body, reason = REFUSED[what]
    forward = f"def forward(self, input_ids, labels=None, **more):\n{textwrap.indent(body, '    ')}"
    width = "@property\ndef width(self):\n    return self.table.weight.mean()\n"
    _, stages = cut_of(width + forward, NET)
    assert stages.reason == reason


# Bodies that are cut, and have to give the whole's numbers stage by stage.
CUT = {
    "scaled": f"x = self.table(input_ids) * self.scale\n{LOOP}return self.head(x)",
    "a mask of the tokens": (
        f"mask = (input_ids > 2).float().mean()\n{START}for layer in self.layers:\n"
        "    x = layer(x, mask)\nreturn self.head(x)"
    ),
    "a table without parameters": (
        f"{START}for layer in self.layers:\n    x = layer(x, self.rope)\n"
        "return self.head(x * self.rope)"
    ),
    "the tokens looked up again": f"{START}{LOOP}return self.head(x + self.table(input_ids))",
    "what has no other name": f"x = self.table(input_ids)\nx = x + 1\nx *= 2\n{LOOP}"
    "x = x - 1\nreturn self.head(x)",
    "a choice": f"{START}if self.scale > 1:\n    x = x * self.scale\n{LOOP}return self.head(x)",
}


def stage_of(text: str, stages: Stages | None, number: int) -> torch.nn.Module:
    """A Net with what the stage of this number has; with all where there are no stages."""
    mesh = Mesh.single() if stages is None else Mesh.single().at_stage(number, 3)
    torch.manual_seed(0)
    with page_module(text) as page:
        net: torch.nn.Module = page.Net(mesh)
    if stages is not None:
        for i in range(3):
            if i != number:
                del net.get_submodule("layers")._modules[str(i)]
        held = (stages.first if number == 0 else ()) + (stages.last if number == 2 else ())
        for name in {*stages.first, *stages.last} - {*held}:
            del net._modules[name]
    return net


@pytest.mark.parametrize("what", CUT)
def test_what_is_cut_gives_the_numbers_of_the_whole(what: str) -> None:
    forward = f"def forward(self, input_ids, labels=None):\n{textwrap.indent(CUT[what], '    ')}"
    y = "self.up(x)"
    uses = NET.replace(f"return x + {y}", f"return x + {y} * (1 if mask is None else mask)")
    written, stages = cut_of(forward, uses)
    assert stages.reason is None
    ids = torch.arange(6).view(1, 6)
    whole = stage_of(written, None, 0)(input_ids=ids)
    given: dict[str, torch.Tensor] = {}
    for number in range(3):
        given = {"hidden": stage_of(written, stages, number)(input_ids=ids.clone(), **given)}
    torch.testing.assert_close(given["hidden"], whole)
