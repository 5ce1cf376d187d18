"""Drawings and pages as a browser shows them: light and dark, wide and narrow, 2 layers and 1,000.

The boxes and colours that the browser computed are what is asserted: pictures differ by fonts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Scheme, Window, misplaced, pale, start, wider_than_window
from drawn_models import (
    HOSTILE,
    changed_llama,
    hostile,
    hybrid,
    llama,
    many_parts,
    mixtral,
    nested,
    patterned,
    scattered,
    unlike,
)
from playwright.sync_api import Page, sync_playwright

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.read import read
from specc.compiler.architecture.run import run_page
from specc.compiler.architecture.tree import Architecture
from specc.compiler.render.code_lines import code_lines
from specc.compiler.render.html import html_diff, html_show
from specc.compiler.render.svg import svg
from specc.runtime.layouts import Degrees

EXAMPLES = Path(__file__).parents[2] / "generated_examples"
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (1280, 390)
LAYOUT = Degrees(tp=8, sequence_parallel=True, cp=2, cp_comm_type="a2a", dp=4)
FIGURES = (
    Figure("parameters", "Parameters", 8_030_261_248),
    Figure("parameters.active", "active", 8_030_261_248, "", 1),
    Figure("flops.forward", "Forward, per token", 16 * 10**9, "FLOPs", 0, "at 8192 tokens"),
    Figure("rank", "Weights on a rank", None, "bytes", 1, "tp 3 does not divide 32 heads"),
)
OLD = '''class A:  # </td><script>alert(1)</script>
    size: int = 1
    name = "a name that is so long that it does not fit into half of a window of any sensible width"


class Gone:
    """\u202e"""
'''
NEW = OLD.replace("= 1", "= 20").partition("class Gone")[0] + "\nclass New:\n    y = 1\n"
CHANGES = {
    "decoder": "replaced",
    "decoder.layers[0..31].mlp": "changed",
    "embedding.word_embeddings": "added",
    "output_layer": "removed",
}
# Made when they are asked for: collecting tests is to take no time.
DRAWINGS: dict[str, Callable[[], str]] = {
    "two": lambda: svg(llama(2)),
    "thousand": lambda: svg(llama(1000)),
    "layout": lambda: svg(llama(), layout=LAYOUT),
    "patterned": lambda: svg(patterned()),
    "unlike": lambda: svg(unlike()),
    "scattered": lambda: svg(scattered()),
    "nested": lambda: svg(nested()),
    "hybrid": lambda: svg(hybrid(), layout=LAYOUT),
    "experts": lambda: svg(mixtral(), layout=Degrees(tp=2, cp=2, dp=8, ep=4, pp=2)),
    "many": lambda: svg(many_parts()),
    "hostile": lambda: svg(hostile()),
    "changed": lambda: svg(llama(), changes=CHANGES),
    "page": lambda: svg(_read("diy_gpt"), layout=LAYOUT),
}
PAGES: dict[str, Callable[[], str]] = {
    "diff": lambda: _diff(llama(), changed_llama(), code_lines(OLD, NEW), layout=LAYOUT),
    "experts": lambda: _diff(llama(), mixtral()),
    "same": lambda: _diff(llama(2), llama(2)),
    "thousand": lambda: _diff(unlike(), unlike(first=2048)),
    "hostile": lambda: _diff(hostile(), llama(2)),
    "pages": lambda: _diff(
        _read("llama"), _read("small"), code_lines(_text("llama"), _text("small"))
    ),
    "show": lambda: html_show(patterned(), FIGURES, layout=LAYOUT),
}


def _diff(before: Architecture, after: Architecture, *code: Any, **options: Any) -> str:
    return html_diff(compare(before, after), FIGURES, FIGURES[1:], *code, **options)


def _text(name: str) -> str:
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def _read(name: str) -> Architecture:
    return read(run_page(_text(name), name))


@functools.cache
def drawing(name: str) -> str:
    return DRAWINGS[name]()


@functools.cache
def page_of(name: str) -> str:
    return PAGES[name]()


@pytest.fixture(scope="session")
def window() -> Iterator[Window]:
    with sync_playwright() as playwright:
        browser = start(playwright)
        yield Window(browser)
        browser.close()


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing(window: Window, tmp_path: Path, name: str) -> None:
    """Every text is seen, within its box and beside all others, and stands out from it."""
    with window.showing(tmp_path / "drawing.svg", drawing(name)) as page:
        assert misplaced(page) == []
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert pale(page, "text") == []
            page.screenshot(path=tmp_path / f"{scheme}.png")


@pytest.mark.parametrize("name", ["layout", "patterned", "nested", "hostile", "experts"])
def test_drawing_in_the_widest_font(window: Window, tmp_path: Path, name: str) -> None:
    """Nothing is cut off where a reader has DejaVu alone, the widest of the fonts."""
    text = drawing(name).replace("Arial", "'DejaVu Sans'")
    with window.showing(tmp_path / "drawing.svg", text) as page:
        assert misplaced(page) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_pixels(window: Window, tmp_path: Path, scheme: Scheme) -> None:
    """What is painted: dark or light paper, the colour of a block, and its letters on it."""
    with window.showing(tmp_path / "drawing.svg", drawing("two"), scheme=scheme) as page:
        paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
        assert set(window.colours(0, 0, 4, 4)) == {paper}
        (block,) = _boxes(page, ".kind-attention > .box")
        (title,) = _boxes(page, ".kind-attention > .title")
        fill = page.locator(".kind-attention > .box").evaluate("e => getComputedStyle(e).fill")
        assert set(window.colours(block["x"] + 6, block["y"] + 8, 3, 3)) == {fill} != {paper}
        letters = window.colours(title["x"], title["y"], title["width"], title["height"])
        assert sum(colour != fill for colour in letters) > len(letters) / 20


def test_residual_stream_goes_round(window: Window, tmp_path: Path) -> None:
    """Its line passes beside every block of the layer, from above the norm to the plus below."""
    with window.showing(tmp_path / "drawing.svg", drawing("two")) as page:
        rounds = _boxes(page, ".kind-layer > .residual > .line")
        blocks = _boxes(page, ".kind-layer > .block > .box:not(.behind)")
        pluses = _boxes(page, ".kind-layer > .plus > circle")
        frame = _boxes(page, ".kind-layer > .box:not(.behind)")[0]
        assert (len(rounds), len(blocks), len(pluses)) == (2, 4, 2)
        for number, (line, plus) in enumerate(zip(rounds, pluses, strict=True)):
            norm, work = blocks[2 * number : 2 * number + 2]
            assert frame["x"] < line["x"] < min(norm["x"], work["x"])
            assert line["y"] < norm["y"]
            assert line["y"] + line["height"] == pytest.approx(_middle(plus), abs=2)
            assert work["y"] + work["height"] < plus["y"]


@pytest.mark.parametrize("name", PAGES)
def test_page(window: Window, tmp_path: Path, name: str) -> None:
    """It does not scroll sideways, and all that is shown can be read."""
    with window.showing(tmp_path / "page.html", page_of(name)) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert wider_than_window(page) == 0
            assert misplaced(page) == []
            for scheme in SCHEMES if name != "thousand" else SCHEMES[width == 390 :][:1]:
                page.emulate_media(color_scheme=scheme)
                assert pale(page, "body *") == []
                page.screenshot(path=tmp_path / f"{scheme}_{width}.png")


def test_all_parts_of_a_page_unfold(window: Window, tmp_path: Path) -> None:
    """Nothing of the page needs a script: what is folded opens by keyboard."""
    with window.showing(tmp_path / "page.html", page_of("diff"), width=390) as page:
        whole = page.locator("details.whole > summary")
        whole.focus()
        page.keyboard.press("Enter")
        assert page.locator("details.whole .part", has_text="linear_fc1").first.is_visible()
        assert wider_than_window(page) == 0
        assert pale(page, "details.whole *") == []


def test_a_long_tree_is_folded(window: Window, tmp_path: Path) -> None:
    """The line above 1,000 changed layers says that they are there; opened, the last is seen."""
    with window.showing(tmp_path / "page.html", page_of("thousand")) as page:
        line = page.locator("#tree > .tree summary", has_text="decoder")
        assert "1,000 lines" in line.inner_text()
        last = page.locator("#tree > .tree .part", has_text="layers[999]")
        assert not last.is_visible()
        line.click()
        assert last.is_visible()


def test_what_is_read_out(window: Window, tmp_path: Path) -> None:
    """Headings, regions, the drawing's name, and changes in words beside their signs."""
    with window.showing(tmp_path / "page.html", page_of("diff")) as page:
        assert page.get_by_role("heading", level=1).inner_text() == "llama → longer"
        headings = page.get_by_role("heading", level=2).all_inner_texts()
        assert headings == ["What differs", "Figures", "Drawings", "Code"]
        assert page.get_by_role("img", name="Architecture of llama").count() == 1
        row = page.locator("#tree .row.changed", has_text="self_attention").first
        assert "changed:" in (row.text_content() or "")
        assert page.get_by_role("columnheader", name="Change", exact=True).count() == 1


def test_paper(window: Window, tmp_path: Path) -> None:
    """Printed, folded code is there and the links to parts of the page are not."""
    with window.showing(tmp_path / "page.html", page_of("diff")) as page:
        page.locator("details.block > summary").first.click()
        assert not page.locator("details.block td").first.is_visible()
        page.emulate_media(media="print")
        assert page.locator("details.block td").first.is_visible()
        assert not page.locator("nav").is_visible()


def test_hostile_names_are_shown(window: Window, tmp_path: Path) -> None:
    """A name that looks like markup is text, in the drawing and in the page."""
    with window.showing(tmp_path / "page.html", page_of("hostile")) as page:
        assert page.locator("script, img, iframe, object").count() == 0
        seen = HOSTILE.replace("\x00", "\ufffd").replace("\u202e", "\ufffd")
        assert page.locator("h1 .model").first.inner_text() == seen


def _boxes(page: Page, selector: str) -> list[dict[str, float]]:
    boxes: list[dict[str, float]] = page.locator(selector).evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().toJSON())"
    )
    return sorted(boxes, key=lambda box: box["y"])


def _middle(box: dict[str, float]) -> float:
    return box["y"] + box["height"] / 2
