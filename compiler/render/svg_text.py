"""How wide text is, without a font: as wide as in the widest of the fonts that a drawing names.

An SVG is shown with whatever font the reader has. A text that is measured too narrow leaves its
box, so each character counts with its width in DejaVu Sans or in Arial, whichever is wider there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

SANS = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# Widths in em of DejaVu Sans and Liberation Sans (which has Arial's): the larger, up to 0.05.
_WIDTHS = {
    0.3: "'Iijl",
    0.35: " ,./:;\\|·",
    0.4: "()-[]ft",
    0.45: "!r",
    0.5: '"*J`',
    0.55: "csz–",
    0.6: "?L_kvxy",
    0.65: "$0123456789FTabdeghnopqu{}",
    0.7: "ABEKPSVXYZ",
    0.75: "CNRU",
    0.8: "&DGHOQ",
    0.85: "#+<=>^w~×→±",
    0.9: "M",
    1.0: "%Wm…",
    1.05: "@",
}
_WIDTH = {character: em for em, characters in _WIDTHS.items() for character in characters}
_MONO = 0.61  # DejaVu Sans Mono's is 0.602, Menlo's the same, Consolas's 0.55

# What XML cannot hold, what breaks a line, and what turns the direction of the text that follows.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_BLANKS = re.compile(r"(?<=\s)(?=\S)")
_IN_NAMES = re.compile(r"(?<=[._/,\[\]])(?=[^\W\d])")  # not in a number


def clean(text: str) -> str:
    """Text that is safe to draw on one line: control characters are shown as U+FFFD."""
    return _HARMFUL.sub("\ufffd", re.sub(r"\s+", " ", text))


def visible(text: str) -> str:
    """Text of a page's line, its blanks kept, what nobody would see as U+FFFD."""
    return _HARMFUL.sub("\ufffd", text.expandtabs(4))


@dataclass(frozen=True)
class Style:
    """A font: its size in pixels, bold or not, fixed width or not."""

    size: float
    bold: bool = False
    mono: bool = False

    @property
    def line(self) -> float:
        """From one line to the next."""
        return round(1.3 * self.size)

    @property
    def css(self) -> str:
        return f"font: {'bold ' * self.bold}{self.size:g}px {MONO if self.mono else SANS}"

    def width(self, text: str) -> float:
        """Pixels that a text takes at most."""
        return self.size * sum(self._em(character) for character in text)

    def _em(self, character: str) -> float:
        if self.mono and character.isascii():
            return _MONO
        em = _WIDTH.get(character) or _unlisted(character)
        return 1.1 * em + 0.03 if self.bold else em

    def wrap(self, text: str, room: float) -> list[str]:
        """Lines of at most so many pixels: broken at blanks; a word that is too long for a line
        behind its dots and underscores, else anywhere.
        """
        lines: list[str] = []
        line = ""
        for piece in self._pieces(text, room):
            if line and self.width((line + piece).rstrip()) > room:
                lines.append(line.rstrip())
                line = ""
            line += piece
        return [*lines, line.rstrip()] if line.strip() else lines

    def _pieces(self, text: str, room: float) -> Iterator[str]:
        """What a line is not broken within."""
        for word in _BLANKS.split(text):
            if self.width(word.rstrip()) <= room:
                yield word
                continue
            for part in _IN_NAMES.split(word):
                yield from (part,) if self.width(part.rstrip()) <= room else part


def _unlisted(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05 if character.isalpha() else 1.4  # an emoji is wider than a letter
    base = unicodedata.normalize("NFD", character)[0]
    return _WIDTH.get(base, 1.2)


STYLES = {
    "heading": Style(18, bold=True),
    "title": Style(13, bold=True),
    "words": Style(12),
    "name": Style(10.5, mono=True),
    "count": Style(10.5),
    "shape": Style(10.5, mono=True),
    "badge": Style(13, bold=True),
    "mark": Style(10.5),
    "sign": Style(10.5, bold=True),
    "legend": Style(10.5),
}
