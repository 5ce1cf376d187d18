"""Cases in text files: what goes in, a line of dashes, what has to come out.

    === a title | words for the test
    the input
    ---
    the output

Blank lines around both do not count. `--update-golden` writes the outputs anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Case:
    file: Path
    title: str
    words: str
    given: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.title}"

    @property
    def text(self) -> str:
        words = f" | {self.words}" if self.words else ""
        given = f"{self.given}\n" if self.given else ""
        return f"=== {self.title}{words}\n{given}---\n{self.expected}\n"


def read_cases(file: Path) -> list[Case]:
    """The cases of a file, after words about it.

    Raises ValueError for a case without dashes, or with the title of another.
    """
    cases: list[Case] = []
    _, *parts = f"\n{file.read_text(encoding='utf-8')}".split("\n=== ")
    for part in parts:
        head, _, rest = part.partition("\n")
        given, dashes, expected = f"\n{rest}".partition("\n---")
        title, _, words = (piece.strip() for piece in head.partition("|"))
        if not dashes:
            raise ValueError(f"{file}: `{title}` has no line `---`")
        if title in {case.title for case in cases}:
            raise ValueError(f"{file}: `{title}` stands there twice")
        cases.append(Case(file, title, words, given.strip("\n"), expected.strip("\n")))
    return cases


def update(cases: Iterable[Case], outcome: Callable[[Case], str]) -> None:
    """Write what comes out of each case into its file."""
    for file, of_file in _by_file(cases).items():
        words = file.read_text(encoding="utf-8").partition("=== ")[0]
        new = [dataclasses.replace(case, expected=_told(case, outcome)) for case in of_file]
        file.write_text(words + "\n".join(case.text for case in new), encoding="utf-8")


def _told(case: Case, outcome: Callable[[Case], str]) -> str:
    try:
        return outcome(case).strip("\n")
    except Exception as error:
        error.add_note(f"in the case {case}")
        raise


def _by_file(cases: Iterable[Case]) -> dict[Path, list[Case]]:
    found: dict[Path, list[Case]] = {}
    for case in cases:
        found.setdefault(case.file, []).append(case)
    return found
