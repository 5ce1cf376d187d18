"""A difference or a model as Markdown, for a comment on a pull request: tables, code folded."""

from __future__ import annotations

from collections.abc import Sequence

from .code_lines import CodeBlock
from .code_text import code_place, code_text
from .figure_rows import FigureRow, figure_rows, lone_rows
from .markdown_text import code, escaped, fenced
from .model import Comparison, Model
from .model_rows import show_rows
from .row import Row
from .row_numbers import row_parameters
from .rows import diff_rows
from .summary import SAME, summary

LIMIT = 65_536  # characters that GitHub takes in a comment
_ROOM = 400  # for what is said of what was left out
_ELSEWHERE = "the same command without `--markdown` shows all"


def markdown_diff(comparison: Comparison, *, everything: bool = False, limit: int = LIMIT) -> str:
    """A table of what differs, one of the figures, the lines of code in a `<details>`.

    At most `limit` characters: whole blocks of code are left out first, from the last, then lines
    of the tree; what was is said.
    """
    names = comparison.before.name, comparison.after.name
    difference = comparison.difference
    told = SAME if difference.empty else summary(difference).text()
    head = f"### {code(names[0])} → {code(names[1])}\n\n{told}\n"
    figures = figure_rows(comparison.before.figures, comparison.after.figures)
    below = _figure_table(figures, names) if figures and not difference.empty else ""
    rows = diff_rows(difference, everything=everything)
    room = limit - _ROOM - len(head) - len(below)
    tree = _table(
        "| | part | was | is | parameters |\n|---|---|---|---|--:|\n",
        [_changed(row) for row in rows],
        room,
    )
    return head + tree + below + _details(comparison.code, room - len(tree))


def markdown_show(model: Model, *, everything: bool = False, limit: int = LIMIT) -> str:
    """A table of the tree and one of the figures, at most `limit` characters."""
    head = f"### {code(model.name)}\n"
    figures = lone_rows(model.figures)
    below = _figure_table(figures, None) if figures else ""
    rows = show_rows(model.architecture, everything=everything)
    tree = _table(
        "| part | | parameters |\n|---|---|--:|\n",
        [f"| {_name(row)} | {_said(row, after=True)} | {row_parameters(row)} |\n" for row in rows],
        limit - _ROOM - len(head) - len(below),
    )
    return head + tree + below


def _changed(row: Row) -> str:
    was, now = _said(row, after=False), _said(row, after=True)
    return f"| {row.sign.strip()} | {_name(row)} | {was} | {now} | {row_parameters(row)} |\n"


def _name(row: Row) -> str:
    indent = "&emsp;" * row.depth
    return indent + code(row.name, in_table=True)


def _said(row: Row, *, after: bool) -> str:
    """A side of the phrases, a line each, so that both sides stand beside each other."""
    sides = [phrase.after if after else phrase.before for phrase in row.phrases]
    if not any(sides):
        return ""
    lines = [escaped(side) if side else "-" for side in sides]
    if after and not row.quiet:
        lines += [code(step, in_table=True) for step in row.steps]
    return "<br>".join(lines)


def _table(heading: str, lines: Sequence[str], room: int) -> str:
    """As many lines as there is room for, and how many there were more."""
    if not lines:
        return ""
    kept, length = 0, len(heading)
    while kept < len(lines) and length + len(lines[kept]) <= room:
        length += len(lines[kept])
        kept += 1
    left = len(lines) - kept
    more = f"\n{left} more lines did not fit; {_ELSEWHERE}.\n" if left else ""
    return f"\n{heading}{''.join(lines[:kept])}{more}"


def _figure_table(rows: Sequence[FigureRow], names: tuple[str, str] | None) -> str:
    sides = [code(name, in_table=True) for name in names or ()]
    heading = f"| | {' | '.join(sides)} | | |" if names else "| figure | | |"
    lines = [heading, "|---|--:|--:|--:|---|" if names else "|---|--:|---|"]
    for row in rows:
        told = [row.before, row.after, row.change] if names else [row.after]
        label = "&emsp;" * row.level + escaped(row.label)
        lines.append("| " + " | ".join((label, *told, escaped(row.note))) + " |")
    return "\n" + "\n".join(lines) + "\n"


def _details(blocks: Sequence[CodeBlock], room: int) -> str:
    """The blocks that there is room for, folded away."""
    if not blocks:
        return ""
    texts = [_block(block) for block in blocks]
    kept = 0
    while kept < len(texts) and sum(map(len, texts[: kept + 1])) <= room:
        kept += 1
    left = blocks[kept:]
    more = ""
    if left:
        lines = sum(line.sign in "+-" for block in left for line in block.lines)
        more = f"{len(left)} of {len(blocks)} places in the code, with {lines} changed lines, did "
        more = f"\n{more}not fit; {_ELSEWHERE}.\n"
    added = sum(line.sign == "+" for block in blocks for line in block.lines)
    removed = sum(line.sign == "-" for block in blocks for line in block.lines)
    body = fenced("".join(texts[:kept]), "diff") if kept else ""
    return (
        f"\n<details>\n<summary>Code: +{added} -{removed} lines</summary>\n\n{body}{more}"
        "\n</details>\n"
    )


def _block(block: CodeBlock) -> str:
    lines = [f"@@ {code_place(block)} @@ {block.name}", *map(code_text, block.lines)]
    return "".join(f"{line}\n" for line in lines)
