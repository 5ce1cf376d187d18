"""Is a page what its spec, this library and this formatter give today?"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..diagnostics import fail, shown_path
from ..fingerprint import Fingerprints, library_hash
from ..header import CLAIM, Header, black_version, digest, split_page
from ..report import exit_as_error
from ..target import Target, parse_target
from ..write import read_page
from . import verdict as cause
from .conflict_markers import first_marker
from .verdict import Verdict

# Codes of what compiling raises, by what they say of the page's spec.
_GONE = re.compile(r"SP61[01]|SP62[0-3]")
_OVERRIDE = re.compile(r"SP64[0-2]")


def check_page(page: Path, now: Fingerprints | None = None) -> Verdict:
    """The verdict on a page. Nothing is imported where all that its header records still holds.

    Raises `SpecError`: SP602 where the file is no page of specc's.
    """
    found = check_header(page, now or Fingerprints())
    return found if isinstance(found, Verdict) else decide(found)


@dataclass(frozen=True)
class Undecided:
    """A page of which some record does not hold: its spec has to be compiled."""

    page: Path
    text: str
    header: Header
    body: str
    target: Target
    causes: tuple[str, ...]


def check_header(page: Path, now: Fingerprints) -> Verdict | Undecided:
    """The verdict as far as hashes give one, without an import of torch, libcst or black.

    Raises as `check_page`.
    """
    text = read_page(page)
    parsed = split_page(text)
    if parsed is None:
        return _without_header(page, text)
    header, body = parsed
    own = replace(header, body=digest(body), black=black_version())
    try:
        target = parse_target(header.origin, page.resolve().parent)
    except Exception as error:
        if not hasattr(error, "diagnostics"):
            raise
        current = replace(own, library=now.library(None, body))
        others = _causes(header, current, body, cause.LIBRARY_OR_PACKAGE)
        return Verdict(page, "unknown", (cause.GONE, *others), error=_spec_gone(page, header))
    current = replace(
        own,
        spec=now.spec(target.file, header.overrides, target.name),
        library=now.library(target.file, body),
    )
    causes = tuple(_causes(header, current, body))
    if not causes:
        return Verdict(page, "fresh")
    return Undecided(page, text, header, body, target, causes)


def decide(found: Undecided) -> Verdict:
    """The verdict on a page whose spec has to be compiled; needs torch and the compiler."""
    from ..generate import generate

    page, body, causes = found.page, found.body, found.causes
    try:
        new = generate(found.target, found.header.overrides, validate=False).compiled.body
    except SystemExit as ended:
        return _without_a_page(found, exit_as_error(ended))
    except Exception as error:
        return _without_a_page(found, error)
    if cause.LIBRARY in causes and found.header.library == library_hash(found.target.file, new):
        # It was taken by the imports of the body, which an edit changes or makes unreadable.
        causes = tuple(name for name in causes if name != cause.LIBRARY)
    if new == body:
        # The edit, if there was one, is what the spec gives by now.
        kept = tuple(name for name in causes if name != cause.EDITED)
        return Verdict(page, "fresh", kept or (cause.HEADER,))
    if causes == (cause.FORMATTER,) and not _same_program(body, new):
        causes = (*causes, cause.UNRECORDED)
    return Verdict(page, "stale", causes, _diff(found, new))


def _without_header(page: Path, text: str) -> Verdict:
    if not CLAIM.match(text):
        fail(
            "SP602",
            f"`{shown_path(page)}` was not written by specc: it has no header",
            help="give pages that `specc compile` wrote",
        )
    marker = first_marker(text)
    causes = (cause.CONFLICT, cause.UNREADABLE) if marker else (cause.UNREADABLE,)
    return Verdict(page, "unknown", causes, error=_unreadable(page, marker))


def _unreadable(page: Path, marker: int | None) -> Exception:
    if marker is not None:
        return _error(
            page,
            marker,
            "SP608",
            f"`{shown_path(page)}` holds the markers of a merge, from line {marker} on",
            "resolve them; of two headers keep either, and compile the page again",
        )
    return _error(
        page,
        1,
        "SP607",
        f"the header of `{shown_path(page)}` was edited, and cannot be read any more",
        "restore its first lines, or compile the page again elsewhere with -o and compare",
    )


def _spec_gone(page: Path, header: Header) -> Exception:
    return _error(
        page,
        1,
        "SP604",
        f"`{shown_path(page)}` says that it comes from `{header.origin}`, "
        "and there is no such spec",
        "compile it again from where the spec is now",
    )


def _error(page: Path, line: int, code: str, message: str, help: str) -> Exception:
    from specc.templates.diagnostic import Diagnostic, Span, SpecError

    span = Span(str(page), line, 1, 2)
    return SpecError((Diagnostic(code, message, span=span, help=help),))


def _causes(
    header: Header, current: Header, body: str, library: str = cause.LIBRARY
) -> Iterator[str]:
    """Every record of the header that does not hold any more; `current` has what would."""
    if header.spec != current.spec:
        yield cause.SPEC
    if header.library != current.library:
        yield library
    if header.black != current.black:
        yield cause.FORMATTER
    if header.body != current.body:
        yield cause.CONFLICT if first_marker(body) else cause.EDITED


def _without_a_page(found: Undecided, error: Exception) -> Verdict:
    """The verdict where compiling raised: what the user's own code raises is told as it is."""
    codes = {diagnostic.code for diagnostic in getattr(error, "diagnostics", ())}
    others = list(found.causes)
    if any(_GONE.match(code) for code in codes):
        why = cause.GONE
        # A spec that is gone from its file has no text that could have changed.
        others = [name for name in others if name != cause.SPEC]
    elif any(_OVERRIDE.match(code) for code in codes):
        why = cause.OVERRIDE
    else:
        why = cause.BROKEN
    return Verdict(found.page, "unknown", (why, *others), error=error)


def _same_program(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def _diff(found: Undecided, new: str) -> str:
    """From the page to itself with the body that is compiled now, so that lines are the file's."""
    name, old = shown_path(found.page), found.text
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        (old.removesuffix(found.body) + new).splitlines(keepends=True),
        fromfile=name,
        tofile=f"{name} (compiled now)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
