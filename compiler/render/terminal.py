"""A difference or a model as text for a terminal: rich lays out the columns and colours them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .code_lines import CodeBlock
from .code_text import code_place, code_text
from .figure_rows import FigureRow, figure_rows, lone_rows
from .model import Comparison, Model
from .model_rows import show_rows
from .phrase import Phrase
from .row import Row
from .row_numbers import row_parameters
from .rows import diff_rows
from .screen import Screen
from .summary import SAME, summary
from .svg_text import visible

_STYLES = {"+": "green", "-": "red", "~": "yellow", "@": "cyan", " ": ""}
_GAP = 2  # columns between columns
_HEADING = 16  # columns of a name above numbers
_NOTE = 14  # columns that notes beside numbers need
_ASCII = str.maketrans({"→": "->", "×": "x", "·": "-", "…": "..."})


def terminal_diff(comparison: Comparison, screen: Screen, *, everything: bool = False) -> str:
    """The tree of what differs, the figures of both, the lines of code."""
    return _Sheet(screen).print(_diff_parts(_Sheet(screen), comparison, everything))


def terminal_show(model: Model, screen: Screen, *, everything: bool = False) -> str:
    """The tree of a model and its figures."""
    return _Sheet(screen).print(_show_parts(_Sheet(screen), model, everything))


def _diff_parts(
    sheet: _Sheet, comparison: Comparison, everything: bool
) -> Iterator[RenderableType]:
    names = comparison.before.name, comparison.after.name
    rows = diff_rows(comparison.difference, everything=everything)
    same = comparison.difference.empty
    told = SAME if same else summary(comparison.difference).text()
    yield sheet.ends(f"{names[0]} → {names[1]}", told)
    if rows:
        yield Text()
        yield from sheet.tree(rows)
    figures = figure_rows(comparison.before.figures, comparison.after.figures)
    if figures and not (same and not everything):
        yield Text()
        yield sheet.figures(figures, names)
    for block in comparison.code:
        yield Text()
        yield from sheet.code(block)


def _show_parts(sheet: _Sheet, model: Model, everything: bool) -> Iterator[RenderableType]:
    yield sheet.ends(model.name, model.origin)
    yield Text()
    yield from sheet.tree(show_rows(model.architecture, everything=everything))
    figures = lone_rows(model.figures)
    if figures:
        yield Text()
        yield sheet.figures(figures, None)


class _Sheet:
    """Makes what rich prints, in the characters that the screen has."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def print(self, parts: Iterator[RenderableType]) -> str:
        """The text of the parts, without spaces at the ends of lines."""
        screen = self.screen
        console = Console(
            file=io.StringIO(),
            width=screen.width,
            force_terminal=screen.colour,
            color_system="standard" if screen.colour else None,
            no_color=not screen.colour,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        with console.capture() as captured:
            for part in parts:
                console.print(part, soft_wrap=isinstance(part, Text))
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def text(self, text: str, style: str = "") -> Text:
        # Somebody else's page has no say over the terminal.
        text = "\n".join(map(visible, text.split("\n")))
        return Text(text.translate(_ASCII) if self.screen.ascii else text, style)

    def ends(self, left: str, right: str) -> RenderableType:
        """Two texts at the two ends of a line."""
        grid = Table.grid(expand=True, padding=(0, _GAP, 0, 0))
        grid.add_column(overflow="fold")
        grid.add_column(justify="right", overflow="fold")
        grid.add_row(self.text(left, "bold"), self.text(right, "dim"))
        return grid

    def tree(self, rows: Sequence[Row]) -> Iterator[RenderableType]:
        """A line a row: sign, name, words, parameters; below it the steps that differ."""
        named = [f"{row.sign} {'  ' * row.depth}{row.name}" for row in rows]
        counted = [row_parameters(row) for row in rows]
        wide = max(map(len, counted))
        most = 3 * (self.screen.width - wide - 3 * _GAP) // 5  # the rest is for words
        widths = min(max(map(len, named)), most), wide
        room = self.screen.width - sum(widths) - 3 * _GAP
        grid = self.tree_grid(widths)
        for row, name, count in zip(rows, named, counted, strict=True):
            style = "dim" if row.quiet and row.change else _STYLES[row.sign]
            grid.add_row(
                self.text(name, style),
                self.said(row, style, room),
                self.text(count, "dim" if row.quiet else ""),
            )
            if row.steps and not row.quiet:
                yield grid
                grid = self.tree_grid(widths)
                for step in row.steps:
                    indent = "  " * (row.depth + 3)
                    yield Padding(
                        self.text(step, _STYLES.get(step[:1], "")), (0, 0, 0, len(indent))
                    )
        yield grid

    def tree_grid(self, widths: tuple[int, int]) -> Table:
        grid = Table.grid(expand=True, padding=(0, _GAP, 0, 0))
        grid.add_column(width=widths[0], overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_column(width=widths[1], justify="right", no_wrap=True)
        return grid

    def said(self, row: Row, style: str, room: int) -> Text:
        """The phrases of a row, side by side where there is room, else a line each. What was is
        pale, what is stands out.
        """
        phrases = [self.phrase(phrase, style) for phrase in row.phrases]
        wide = sum(map(len, phrases)) + 2 * len(phrases)
        return Text("; " if wide <= room else "\n").join(phrases)

    def phrase(self, phrase: Phrase, style: str) -> Text:
        if phrase.before is None or phrase.after is None:
            return self.text(phrase.text(), style)
        lead, before, after, trail = phrase.pieces()
        told = [(lead, style), (before, "dim"), ("→", "dim"), (after, f"bold {style}")]
        told.append((trail, style))
        return Text(" ").join(self.text(words, like) for words, like in told if words)

    def figures(self, rows: Sequence[FigureRow], names: tuple[str, str] | None) -> RenderableType:
        """A line a figure; of two models with a heading and the change. No number is cut: on a
        narrow screen the notes stand below the labels.
        """
        told = [(row.before, row.after, row.change) if names else (row.after,) for row in rows]
        heads = [_folded(name) for name in names] if names else []
        numbers = [max(map(len, column)) for column in zip(*told, strict=True)]
        for place, head in enumerate(heads):
            numbers[place] = max(numbers[place], *map(len, head.split("\n")))
        labels = [f"  {'  ' * row.level}{row.label}" for row in rows]
        room = self.screen.width - sum(numbers) - _GAP * len(numbers)
        beside = room - max(map(len, labels)) - _GAP >= _NOTE
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True)
        for width in numbers:
            grid.add_column(justify="right", no_wrap=True, width=width)
        grid.add_column(style="dim", overflow="fold")
        if names:
            grid.add_row("", *(self.text(head, "bold") for head in heads))
        for row, label, values in zip(rows, labels, told, strict=True):
            lines = [label] if beside else _wrapped(label, row.note, room - _GAP)
            note = row.note if beside else ""
            grid.add_row(*map(self.text, ("\n".join(lines), *values, note)))
        return grid

    def code(self, block: CodeBlock) -> Iterator[Text]:
        """The lines of a block that changed, as git shows them."""
        yield self.text(f"@@ {code_place(block)} @@ {block.name}", "bold cyan")
        for line in block.lines:
            yield self.text(code_text(line), _STYLES[line.sign])


def _folded(name: str) -> str:
    """A name as a heading of a column of numbers, in lines that are not much wider."""
    return "\n".join(name[start : start + _HEADING] for start in range(0, len(name), _HEADING))


def _wrapped(label: str, note: str, width: int) -> list[str]:
    """A label and the note on it, in lines of a width."""
    indent = " " * (len(label) - len(label.lstrip()))
    lines = wrap(label, width, subsequent_indent=f"{indent}  ")
    below = f"{indent}    "
    return lines + wrap(note, width, initial_indent=below, subsequent_indent=below)
