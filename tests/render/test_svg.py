"""Drawings as text: what stands in them, which collectives are marked, what no name breaks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from drawn_models import (
    HOSTILE,
    attention,
    experts,
    hostile,
    hybrid,
    linear,
    llama,
    many_parts,
    mixer,
    mixtral,
    mlp,
    model,
    nested,
    patterned,
    scattered,
    unlike,
)

from specc.compiler.architecture.tree import Architecture, Part
from specc.compiler.render.svg import svg
from specc.compiler.render.svg_collectives import marks
from specc.runtime.communication import end_collectives, layer_collectives
from specc.runtime.layouts import Degrees
from specc.runtime.model_shape import ModelShape
from specc.runtime.workload import Workload

Made = Callable[..., Architecture]
STACKS: tuple[Made, ...] = (llama, patterned, unlike, scattered)
ALL: tuple[Made, ...] = (*STACKS, mixtral, hybrid, nested, many_parts, hostile)
NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("made", ALL)
def test_one_file_the_same_each_time(made: Made) -> None:
    """Well-formed, named and described, no script, nothing from elsewhere, the same bytes."""
    few = (30,) if made in STACKS else ()
    text = svg(made(*few), layout=Degrees(tp=2))
    assert text == svg(made(*few), layout=Degrees(tp=2))
    root = ET.fromstring(text)
    names = root.attrib["aria-labelledby"].split()
    assert [e.attrib["id"] for e in root[:2]] == names
    assert all(element.text for element in root[:2])
    tags = {element.tag.removeprefix(NAMESPACE) for element in root.iter()}
    assert tags <= {"svg", "g", "title", "desc", "style", "rect", "circle", "path", "text"}
    assert text.count("http") == 1  # the namespace
    assert "url(" not in text and "@import" not in text


def test_what_a_reader_sees() -> None:
    texts = _texts(llama())
    for said in (
        "llama",
        "Attention",
        "MLP",
        "SwiGLU 14336",
        "× 32",
        "218.1 M each",
        "[b, s, 4096]",
    ):
        assert said in texts
    assert texts.count("RMSNorm") == 3


def test_description_reads_in_the_order_of_the_model() -> None:
    said = _description(llama(2))
    places = [said.index(w) for w in ("Embedding", "2 times", "Attention", "MLP", "Output")]
    assert places == sorted(places)
    assert "added to the residual stream" in said


def test_pattern_of_unlike_layers() -> None:
    """26 layers, every sixth of another kind: the period four times, and what is left."""
    texts = _texts(patterned())
    assert "4 × (5 A, B), 2 A" in texts
    assert {"× 4", "× 5", "× 2", "as above"} <= set(texts)
    texts = _texts(patterned(24))  # the period is the whole stack
    assert {"5 A, B", "× 4", "layers[0..23]"} <= set(texts)


def test_layers_that_differ_in_size_are_one() -> None:
    texts = _texts(unlike(100))
    assert {"× 100", "SwiGLU 1024–1123", "54.53 M–55.75 M each"} <= set(texts)


def test_no_drawing_grows_with_the_number_of_layers() -> None:
    """1,000 layers of any kind take about as much as 40: text, and pixels."""
    for made in STACKS:
        few, many = svg(made(40)), svg(made(1000))
        assert len(many) < 2 * len(few)
        assert _height(many) < 1.5 * _height(few)
    assert _height(svg(many_parts(3000))) < 1.2 * _height(svg(many_parts(300)))


def test_what_is_left_out_is_said() -> None:
    assert "… 270 parts" in _texts(many_parts(300))


def test_hostile_names_stay_text() -> None:
    text = svg(hostile())
    assert "<script" not in text and "<img" not in text
    assert "\x00" not in text and "\u202e" not in text
    shown = " ".join(HOSTILE.split()).replace("\x00", "\ufffd").replace("\u202e", "\ufffd")
    assert shown.replace(" ", "") in "".join(_texts(hostile())).replace(" ", "")


def test_changes_are_marked_with_words() -> None:
    """A block is marked by what is in it, too; a frame by itself."""
    path = "decoder.layers[0..31]"
    changes = {f"{path}.mlp.linear_fc1": "changed", "embedding.word_embeddings": "added"}
    text = svg(llama(), changes=changes)
    assert text.count("~ changed") == text.count("+ added") == 1
    assert f'is-changed" data-path="{path}.mlp"' in text
    assert f'is-changed" data-path="{path}"' not in text


def test_ids_of_two_drawings_in_a_page_differ() -> None:
    assert 'id="left-title"' in svg(llama(), identity="left")


LAYOUTS = [
    Degrees(tp=8),
    Degrees(tp=8, sequence_parallel=True),
    *(Degrees(cp=4, cp_comm_type=kind) for kind in ("all_gather", "p2p", "a2a")),
    Degrees(tp=2, cp=2, sequence_parallel=True),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_marks_are_the_collectives_of_a_forward(layout: Degrees) -> None:
    """Of a layer and of the two ends, against the runtime's own count."""
    shape = ModelShape(2, 4096, 32, 8, 128, 14336, 128256)
    work = Workload(layout, length=1024)
    found = _kinds(attention(), layout) + _kinds(mlp(), layout)
    assert found == _counted(layer_collectives(shape, work).forward)
    embedding = model([]).root.children[0].children[0]
    ends = _kinds(embedding, layout) + _kinds(linear("out", 8, 8, 0, "output"), layout)
    of_loss = Counter({"all_reduce": 2}) if layout.tp > 1 else Counter[str]()
    assert ends == _counted(end_collectives(shape, work).forward) - of_loss


def _kinds(part: Part, layout: Degrees) -> Counter[str]:
    """Of the marks of a part: a ring's turns are one mark."""
    found = marks(part, layout)
    kinds: Counter[str] = Counter()
    for text in (*found.entry, *found.during, *found.exit):
        if "ring" in text:
            kinds["all_to_all"] += layout.cp - 1
        else:
            kinds[text.split(" ")[0].replace("-", "_")] += 1
    return kinds


def _counted(collectives: Counter[object]) -> Counter[str]:
    found: Counter[str] = Counter()
    for collective, count in collectives.items():
        found[collective.kind] += count  # type: ignore[attr-defined]
    return found


def test_output_that_gathers_is_marked() -> None:
    part = linear("out", 8, 8, 0, "output")
    gathers = Part(**{**vars(part), "facts": (*part.facts, ("gather_output", True))})
    assert marks(gathers, Degrees(tp=2)).exit == ("all-gather over tp2",)
    assert marks(gathers, Degrees(dp=2)).exit == ()


def test_experts_are_drawn_by_what_they_are() -> None:
    texts = _texts(mixtral())
    for said in ("MoELayer", "2 of 8 experts, each SwiGLU 14336", "Router", "Experts", "MLP"):
        assert said in texts
    assert "8 × SwiGLU 14336" in texts and "SwiGLU 1024" in texts
    # A router's losses stand in its block.
    assert "softmax of the chosen, load balancing loss × 0.02" in " ".join(texts)
    assert "AuxLoss" not in texts


ROWS = ("all-to-all rows over ep4", "all-to-all rows over etp2")
TWO = Degrees(tp=2, cp=2, dp=8, ep=4)


@pytest.mark.parametrize(
    ("layout", "entry", "exit"),
    [
        (Degrees(dp=4, ep=4, etp=1), ROWS[:1], ROWS[:1]),
        # Without sp the ranks of tp share out the tokens, and gather them in the end.
        (TWO, ROWS, (*ROWS[::-1], "all-gather over tp2")),
        (Degrees(tp=2, dp=8, ep=4, sequence_parallel=True), ROWS, ROWS[::-1]),
        (Degrees(dp=4), (), ()),
    ],
)
def test_rows_of_experts_go_and_come_back(
    layout: Degrees, entry: tuple[str, ...], exit: tuple[str, ...]
) -> None:
    """By the table of the runtime's `dispatch`."""
    _, inner, _ = experts().children
    found = marks(inner, layout)
    assert (found.entry, found.during, found.exit) == (entry, (), exit)


def test_a_router_counts_and_drops_over_the_ranks_of_a_micro_batch() -> None:
    router = experts(capacity=1.5).children[0]
    counts = "all-reduce counts over tp2 cp2"
    assert marks(router, TWO).during == ("all-gather choices over tp2 cp2", counts)
    assert marks(router, Degrees(dp=8)).during == ()
    loss = replace(router.children[0], facts=(("type", "load balancing loss of the global batch"),))
    assert marks(loss, TWO).during == ("all-reduce counts over dp8 tp2 cp2",)
    below = " ".join(_texts(mixtral(), Degrees(tp=2, dp=4, ep=4, pp=2)))
    assert "of all-to-all the way back, of counts and choices none." in below
    assert "Pipeline of 2 stages" in below


def test_a_mixer_is_one_block_of_its_stack() -> None:
    texts = _texts(hybrid())
    assert {"Mixer", "Attention", "MLP", "8 layers"} <= set(texts)
    assert "Mamba-2 128 heads of 64, states of 128 in 8 groups, convolution 4," in " ".join(texts)
    assert "channels" not in " ".join(texts)  # of the convolution: its words say that already
    found = marks(mixer(), Degrees(tp=2, cp=2, sequence_parallel=True))
    assert (found.entry, found.exit) == (("all-gather over tp2",), ("reduce-scatter over tp2",))
    ways = ("places to heads", "heads to places")
    assert found.during == tuple(f"all-to-all {way} over cp2" for way in ways)


def test_keys_that_heads_share_are_gathered_too() -> None:
    """Under sequence parallel; else every rank of tp makes all of them."""
    plain = attention()
    latent = replace(plain, facts=(*plain.facts, ("latent", 512), ("shared", 64)))
    gathered = marks(latent, Degrees(tp=2, sequence_parallel=True)).entry
    assert gathered == ("2 × all-gather over tp2",)
    assert marks(latent, Degrees(tp=2)).entry == ()


def test_attention_in_an_attention_is_one() -> None:
    """Megatron's core attention exchanges k and v; what holds it does not once more."""
    outer = attention()
    inner = Part("core_attention", "attention", "CoreAttention")
    part = Part(**{**vars(outer), "children": (*outer.children, inner)})
    assert marks(part, Degrees(cp=2)).during == ("all-gather k, v over cp2",)


def test_layout_is_explained_below() -> None:
    texts = " ".join(_texts(llama(), Degrees(tp=2, dp=4, zero=2)))
    assert "At tp2 dp4 zero2." in texts
    assert "the backward has the adjoint" in texts
    assert "FSDP, ZeRO-2" in texts
    assert "adjoint" not in " ".join(_texts(llama(), Degrees(dp=4)))


def test_model_without_parts() -> None:
    root = Part("Net", "model", "Net")
    assert "Net" in _texts(Architecture("net", root))


def _texts(architecture: Architecture, layout: Degrees | None = None) -> list[str]:
    root = ET.fromstring(svg(architecture, layout=layout))
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def _description(architecture: Architecture) -> str:
    return ET.fromstring(svg(architecture))[1].text or ""


def _height(text: str) -> float:
    return float(ET.fromstring(text).attrib["height"])
