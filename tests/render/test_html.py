"""Pages as text: one file, all lines of the tree, nothing that a name could break."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from drawn_models import changed_llama, hostile, llama, mixtral, unlike

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.figure import Figure
from specc.compiler.render import html_tree
from specc.compiler.render.html import html_diff, html_show
from specc.compiler.render.html_tree import marked
from specc.compiler.render.rows import diff_rows

FIGURES = (Figure("parameters", "Parameters", 8_030_261_248),)
VOID = {"meta", "link", "col", "br"}


class Reader(HTMLParser):
    """Reads a page, and fails where an element is not closed by its own end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("other", [llama, changed_llama, mixtral, hostile])
def test_one_file(other: object) -> None:
    """Elements are closed, no script, no address but places of the page, the same bytes."""
    assert callable(other)
    text = html_diff(compare(llama(), other()), FIGURES, FIGURES)
    assert text == html_diff(compare(llama(), other()), FIGURES, FIGURES)
    reader = read(text)
    assert not reader.seen & {"script", "img", "iframe", "object"}
    assert all(a.startswith(("#", "data:,")) for a in reader.addresses)
    assert "url(" not in text and "@import" not in text


def test_what_differs_stands_there() -> None:
    text = html_diff(compare(llama(), changed_llama()), FIGURES, FIGURES)
    read(text)
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    assert "SwiGLU 14336 is now 11008" in plain
    assert text.count("<svg") == 2
    assert "~ changed" in text


def test_same_architecture() -> None:
    text = html_diff(compare(llama(), llama()), FIGURES, FIGURES)
    assert "the same architecture" in text
    assert "the architectures are the same" in text
    assert 'class="tag"' not in text


def test_model_by_itself() -> None:
    text = html_show(llama(), FIGURES)
    read(text)
    assert text.count("<svg") == 1
    assert "8.030 B" in text
    assert '<body class="show">' in text


def test_drawings_mark_what_the_tree_says() -> None:
    """By the paths of each side: 32 layers before, 40 after."""
    difference = compare(llama(), changed_llama())
    olds, news = marked(difference, diff_rows(difference))
    assert olds["decoder.layers[0..31].mlp"] == news["decoder.layers[0..39].mlp"] == "changed"
    assert not any("layernorm" in path for path in (*olds, *news))


def test_tree_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bounded, and what does not stand there is counted."""
    monkeypatch.setattr(html_tree, "MOST", 20)
    difference = compare(unlike(9), unlike(9, first=2048))
    whole = diff_rows(difference, everything=True)
    assert html_tree.tree_of(whole).left == len(whole) - 20 > 0
    text = html_diff(difference, FIGURES, FIGURES)
    assert f"{len(whole) - 20:,} more lines" in text
    read(text)
