"""The long text of each code: texts/SPxxx.md, one file a code.

A text opens with `# SP101: what it means`, the words that docs/diagnostics.md has for the code.
Below stand what is behind it and, under `Wrong:` and `Right:`, examples, which the tests run. An
example shows the lines that matter: they replace those of `tiny_spec.md` that bind the same names,
and what binds none of its names stands before its first spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "texts"
_HEADING = re.compile(r"# (SP\d{3}): (.+)\n+")
_FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?:(?:error|warning|note)\[)?(?:SP)?(\d{3})\]?", re.IGNORECASE)


@dataclass(frozen=True)
class Explanation:
    """A code, what it means in a line, and the text below, in Markdown."""

    code: str
    meaning: str
    text: str

    def for_terminal(self) -> str:
        """The whole as plain text: code stands indented, a file under its name."""

        def indented(match: re.Match[str]) -> str:
            lines = [f"    {line}".rstrip() for line in match[3].splitlines()]
            return "\n".join([f"  {match[2]}:\n", *lines] if match[2] else lines)

        return f"{self.code}: {self.meaning}\n\n{_FENCE.sub(indented, self.text).rstrip()}"


@cache
def codes() -> tuple[str, ...]:
    """All codes that have a text, in order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("SP*.md")))


@cache
def explanation(code: str) -> Explanation:
    """The text of one of `codes()`. Raises ValueError where its file does not open as it has to."""
    text = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    heading = _HEADING.match(text)
    if heading is None or heading[1] != code:
        raise ValueError(f"{code}.md has to open with `# {code}: what it means`")
    return Explanation(code, heading[2], text[heading.end() :])


def tiny_spec() -> str:
    """The spec that the examples change."""
    found = _FENCE.search((FOLDER / "tiny_spec.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[3]


def code_of(word: str) -> str | None:
    """The code that `SP101`, `sp101`, `101` or `error[SP101]` names, whether or not it has a text;
    None for other words."""
    match = _CODE.fullmatch(word.strip())
    return f"SP{match[1]}" if match else None


def nearest(word: str, count: int = 3) -> tuple[str, ...]:
    """Codes that were perhaps meant: the nearest numbers, or those whose meaning has the word."""
    code = code_of(word)
    if code is not None:
        near = sorted(codes(), key=lambda known: abs(int(known[2:]) - int(code[2:])))
        return tuple(sorted(near[:count]))
    found = (known for known in codes() if word.lower() in explanation(known).meaning.lower())
    return tuple(found)[:count]
