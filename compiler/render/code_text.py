"""Lines of code that differ, as a unified diff writes them."""

from __future__ import annotations

from .code_lines import CodeBlock, CodeLine

GAP = "@@"


def code_text(line: CodeLine) -> str:
    """A line behind its sign; a gap is what a unified diff begins a hunk with."""
    return GAP if line.sign == "@" else f"{line.sign}{line.text.expandtabs(4)}".rstrip()


def code_place(block: CodeBlock) -> str:
    """Where a block begins in both files: `-62 +60`; one of them where it is only there."""
    before = next((line.before for line in block.lines if line.before is not None), None)
    after = next((line.after for line in block.lines if line.after is not None), None)
    told = (f"-{before}" if before is not None else "", f"+{after}" if after is not None else "")
    return " ".join(filter(None, told))
