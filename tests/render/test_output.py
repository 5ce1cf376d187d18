"""Where a command's output goes: its width, its colour, its characters, its reader."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from specc.compiler.commands.output import screen, write_out


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding: str = "utf-8", terminal: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def test_a_terminal_has_colour_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "72")
    found = screen(no_color=False)
    assert (found.width, found.colour, found.ascii) == (72, True, False)
    assert not screen(no_color=True).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen(no_color=False).colour


def test_a_pipe_has_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal("latin-1", terminal=False))
    found = screen(no_color=False)
    assert (found.width, found.colour, found.ascii) == (100, False, True)
    monkeypatch.setenv("COLUMNS", "130")
    assert screen(no_color=False).width == 130
    monkeypatch.setenv("COLUMNS", "3")
    assert screen(no_color=False).width == 60


def test_what_an_encoding_has_not_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal("ascii")
    monkeypatch.setattr(sys, "stdout", out)
    write_out("a → 层\n")
    assert out.buffer.getvalue() == b"a \\u2192 \\u5c42\n"  # type: ignore[attr-defined]


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    told = "from specc.compiler.commands.output import write_out; write_out('x' * 100_000)"
    done = subprocess.run(
        [sys.executable, "-c", f"{told}; raise SystemExit(1)"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
