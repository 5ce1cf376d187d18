"""`specc check`: is a page what its spec, this library and this formatter give today?"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from .diagnostics import fail, shown_path
from .fingerprint import library_hash, spec_hash
from .header import Header, black_version, digest, split_page
from .target import Target, parse_target
from .write import read_page


@dataclass(frozen=True)
class Verdict:
    """What a page is: fresh, with the causes for a header that is behind, or stale.

    `diff` goes from the page to what it should be, and is empty where the page is fresh.
    """

    page: Path
    fresh: bool
    causes: tuple[str, ...] = ()
    diff: str = ""

    def render(self) -> str:
        """The verdict in one line."""
        page = shown_path(self.page)
        if not self.fresh:
            return f"{page}: stale: {', '.join(self.causes)}"
        if self.causes:
            return (
                f"{page}: fresh ({', '.join(self.causes)}, and the page is the same; "
                "`specc compile` brings its header up to date)"
            )
        return f"{page}: fresh"


def check_page(page: Path) -> Verdict:
    """The verdict on a page. Nothing is imported where all that its header records still holds.

    Raises `SpecError`: SP602 where the file has no header of specc, SP604 where its spec is gone;
    and what compiling the spec raises.
    """
    text = read_page(page)
    parsed = split_page(text)
    if parsed is None:
        fail(
            "SP602",
            f"`{shown_path(page)}` was not written by specc: it has no header",
            help="give pages that `specc compile` wrote",
        )
    header, body = parsed
    target = _target(header, page)
    changes = _changes(header, target, body)
    if not changes:
        return Verdict(page, fresh=True)
    new = _regenerate(target, header)
    if new == body:
        # The edit, if there was one, is what the spec gives by now.
        causes = tuple(cause for cause in changes if cause != EDITED)
        return Verdict(page, fresh=True, causes=causes or (HEADER,))
    if changes == [FORMATTER] and not _same_program(body, new):
        changes = [FORMATTER, UNRECORDED]
    return Verdict(page, fresh=False, causes=tuple(changes), diff=_diff(page, body, new))


SPEC = "spec changed"
LIBRARY = "library changed"
FORMATTER = "formatter changed"
EDITED = "edited by hand"
HEADER = "header edited by hand"
UNRECORDED = "something changed that the header does not record"


def _changes(header: Header, target: Target, body: str) -> list[str]:
    """Every record of the header that does not hold any more, in words."""
    changes = []
    if spec_hash(target.file, header.overrides) != header.spec:
        changes.append(SPEC)
    if library_hash(target.file, body) != header.library:
        changes.append(LIBRARY)
    if black_version() != header.black:
        changes.append(FORMATTER)
    if digest(body) != header.body:
        changes.append(EDITED)
    return changes


def _target(header: Header, page: Path) -> Target:
    try:
        return parse_target(header.origin, page.resolve().parent)
    except Exception as error:
        if not hasattr(error, "diagnostics"):
            raise
        fail(
            "SP604",
            f"`{shown_path(page)}` says that it comes from `{header.origin}`, "
            "and there is no such spec",
            help="compile it again from where the spec is now",
        )


def _regenerate(target: Target, header: Header) -> str:
    """The body that the page's spec gives now; needs torch and the rest of the compiler."""
    from .generate import generate

    return generate(target, header.overrides, validate=False).compiled.body


def _same_program(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def _diff(page: Path, old: str, new: str) -> str:
    name = shown_path(page)
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        fromfile=name,
        tofile=f"{name} (compiled now)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
