"""What a run prints."""

import io

import pytest

from specc.runtime.progress import Clock, Progress, Report, duration, line


def test_a_line_has_all_numbers() -> None:
    report = Report(7, 2.34567, 0.5, 3e-4, 12345.6, 187.2)
    told = "step   7/100  loss 2.3457  norm 0.500  lr 3.00e-04  12,346 tokens/s  3m07s left"
    assert line(report, 100) == told
    assert line(Report(7, 1, 1, 1, 1, 1, held_out=2.2), 9).endswith("1s left  held-out 2.2000")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0s"), (59.6, "1m00s"), (3599, "59m59s"), (7500, "2h05m")]
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_carriage_returns_are_for_terminals() -> None:
    for out in (io.StringIO(), Terminal()):
        progress = Progress(9, speaks=True, out=out)
        progress.tick(1)
        progress.note("a line")
        assert out.getvalue().endswith("a line\n")
        assert ("\r" in out.getvalue()) == out.isatty()
    silent = Terminal()
    Progress(9, speaks=False, out=silent).tick(1)
    Progress(9, speaks=False, out=silent).note("a line")
    assert silent.getvalue() == ""


def test_the_clock_counts_from_its_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    clock = Clock()
    now = 104.0
    assert clock.read(steps=2, tokens=400, left=8) == (100.0, 16.0)
    now = 105.0  # an evaluation
    clock.restart()
    now = 107.0
    assert clock.read(steps=2, tokens=400, left=6) == (200.0, 9.0)
