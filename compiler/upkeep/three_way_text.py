"""Lines merged three ways: git's merge, and what it leaves open where the lines say more.

Git calls it a conflict when two changes touch. Of changes that only touch, both can be made: there
is one order for them. And fields of a config are merged by their names.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import fail

_MARK = 40  # characters of a marker in git's answer: no text has such a line by chance
_FIELD = re.compile(r"    (\w+): [^=\n]+ = \S.*\n")


@dataclass(frozen=True)
class Conflict:
    """Lines that both sides changed."""

    yours: tuple[str, ...]
    base: tuple[str, ...]
    new: tuple[str, ...]


Piece = str | Conflict  # a line that is settled, or a stretch that is not


def merge_texts(yours: str, base: str, new: str) -> list[Piece]:
    """The lines of `base` with the changes of both others, in their order.

    Raises `SpecError`: SP678 where there is no git that could merge.
    """
    if yours in (base, new):
        return [*lines_of(new)]
    if new == base:
        return [*lines_of(yours)]
    pieces: list[Piece] = []
    for piece in _merged_by_git(yours, base, new):
        pieces += [piece] if isinstance(piece, str) else _resolved(piece)
    return pieces


def marked(pieces: Sequence[Piece]) -> tuple[str, list[int]]:
    """The text, with markers as git writes them around what is open, and the markers' lines."""
    lines: list[str] = []
    starts: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            lines.append(piece)
            continue
        starts.append(len(lines) + 1)
        lines += ["<<<<<<< yours\n", *piece.yours]
        lines += ["||||||| base\n", *piece.base]
        lines += ["=======\n", *piece.new]
        lines += [">>>>>>> regenerated\n"]
    return "".join(lines), starts


def lines_of(text: str) -> list[str]:
    """Lines with their ends: nothing but a newline ends one, as for git."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()
    return lines if last == "\n" else [*lines, last]


def _merged_by_git(yours: str, base: str, new: str) -> Iterator[Piece]:
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, text in (("yours", yours), ("base", base), ("new", new)):
            path = Path(folder, name)
            content = "".join(lines_of(text))  # a last line without an end cannot be told in pieces
            path.write_text(content, encoding="utf-8", errors="surrogateescape", newline="\n")
            names.append(str(path))
        answer = _merge_file(names)
    held: list[list[str]] | None = None
    for line in lines_of(answer.decode("utf-8", errors="surrogateescape")):
        sign = line[0] if line.startswith(line[0] * _MARK) else ""
        if sign == "<":
            held = [[]]
        elif held is not None and sign and sign in "|=":
            held.append([])
        elif held is not None and sign == ">":
            yield Conflict(*map(tuple, held))
            held = None
        elif held is not None:
            held[-1].append(line)
        else:
            yield line


def _merge_file(names: list[str]) -> bytes:
    labels = ["-L", "", "-L", "", "-L", ""]
    command = ["git", "merge-file", "-p", "--diff3", f"--marker-size={_MARK}", *labels, *names]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        fail("SP678", "`--merge` needs `git merge-file`, and there is no `git`", help="install git")
    if done.returncode < 0 or done.returncode > 127:  # up to 127 it is a count of conflicts
        said = done.stderr.decode("utf-8", errors="replace").strip()
        fail("SP678", "`git merge-file` failed", note=said or None, help="ask git itself")
    return done.stdout


# ------------------------------------------------------------- what git leaves open


def _resolved(conflict: Conflict) -> list[Piece]:
    fields = _fields_merged(conflict)
    if fields is not None:
        return fields
    return [piece for part in _touching_merged(conflict) for piece in _trimmed(part)]


def _fields_merged(conflict: Conflict) -> list[Piece] | None:
    """Fields of a dataclass, a line each: merged by name. None where there is anything else."""
    sides = [_fields(lines) for lines in (conflict.yours, conflict.base, conflict.new)]
    yours, base, new = sides
    if yours is None or base is None or new is None:
        return None
    pieces: list[Piece] = []
    for name in _ordered([*new], [*yours]):
        mine, old, theirs = (side.get(name) for side in (yours, base, new))
        if mine in (old, theirs):
            kept = theirs
        elif theirs == old:
            kept = mine
        else:
            pieces.append(Conflict(*((side,) if side else () for side in (mine, old, theirs))))
            continue
        if kept is not None:
            pieces.append(kept)
    return pieces


def _fields(lines: Sequence[str]) -> dict[str, str] | None:
    found = {match[1]: line for line in lines if (match := _FIELD.fullmatch(line))}
    return found if len(found) == len(lines) else None


def _ordered(names: list[str], others: list[str]) -> list[str]:
    """`names`, with those of `others` that it lacks after their neighbours there."""
    place = 0
    for name in others:
        if name in names:
            place = names.index(name) + 1
        else:
            names.insert(place, name)
            place += 1
    return names


@dataclass(frozen=True)
class _Change:
    """Lines `start` to `end` of the base, replaced."""

    start: int
    end: int
    lines: tuple[str, ...]

    def touches(self, other: _Change) -> bool:
        """Whether no one could say what both together are."""
        if self.start == self.end or other.start == other.end:
            one, two = (self, other) if self.start == self.end else (other, self)
            inside = two.start < one.start < two.end
            # What is added at the edge of what is taken away may have belonged to it.
            at_edge = two.start <= one.start <= two.end and not two.lines
            return inside or at_edge or (two.start == two.end == one.start)
        return self.start < other.end and other.start < self.end


def _touching_merged(conflict: Conflict) -> list[Piece]:
    yours, new = _changes(conflict.base, conflict.yours), _changes(conflict.base, conflict.new)
    same = [change for change in yours if change in new]
    yours, new = ([c for c in side if c not in same] for side in (yours, new))
    if any(mine.touches(theirs) for mine in yours for theirs in new):
        return [conflict]
    pieces: list[Piece] = []
    place = 0
    # Of two at one place, what is added goes before what is replaced there.
    for change in sorted([*yours, *new, *same], key=lambda c: (c.start, c.end)):
        pieces += [*conflict.base[place : change.start], *change.lines]
        place = change.end
    return [*pieces, *conflict.base[place:]]


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    changes = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace" and b - a == d - c:  # a line for a line
            changes += [_Change(a + n, a + n + 1, (new[c + n],)) for n in range(b - a)]
        elif tag != "equal":
            changes.append(_Change(a, b, tuple(new[c:d])))
    return changes


def _trimmed(piece: Piece) -> list[Piece]:
    """A conflict without the lines at its ends on which both sides agree."""
    if isinstance(piece, str):
        return [piece]
    yours, new = piece.yours, piece.new
    start = 0
    while start < min(len(yours), len(new)) and yours[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(yours), len(new)) - start and yours[-1 - end] == new[-1 - end]:
        end += 1
    inner = Conflict(yours[start : len(yours) - end], piece.base, new[start : len(new) - end])
    return [*yours[:start], inner, *yours[len(yours) - end :]]
