"""Where a command's output goes: how wide it is, what it can show, whether anyone reads."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specc.compiler.render.screen import Screen

_PIPED = 100  # columns where there is no terminal: a page's
_LEAST = 60  # columns that numbers side by side need


def screen(no_color: bool) -> Screen:
    """What stdout shows: colour on a terminal unless `NO_COLOR` or `--no-color` says otherwise."""
    from specc.compiler.render.screen import Screen

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PIPED, 24)).columns if terminal else _columns()
    colour = terminal and not no_color and not os.environ.get("NO_COLOR")
    return Screen(max(width, _LEAST), colour, ascii=not _encodes("→×·…"))


def write_out(text: str) -> None:
    """Write to stdout; characters that it has not are escaped, and a reader that has gone
    (`| head`) is no error.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer is written once more at exit, where nobody catches it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _columns() -> int:
    """`COLUMNS` holds where the output goes into a file, too."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else _PIPED


def _encodes(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
