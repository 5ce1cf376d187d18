"""What a model is asked for by: a spec, a page, or either as it stood at a git revision."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..diagnostics import fail, shown_path
from ..target import Target, file_target, parse_target, split_name
from .page_text import is_page, origin_of, with_overrides
from .revision import Found, Revised, find, parse_revision, refuse_module

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic


@dataclass(frozen=True)
class Source:
    """A model's page, wherever it came from.

    `name` is what the user calls it (`HEAD~3:models/llama.py`). `page_text` is the text of a page
    as it stands, header and all, or the body (not validated) of the page that a spec compiles to.
    `origin` is where that comes from: the spec with its overrides, for a page what its header
    records, "" where it has none. `path` is the file, None at a revision. `warnings` are those on
    the overrides.
    """

    name: str
    kind: Literal["spec", "page"]
    page_text: str
    origin: str
    path: Path | None
    warnings: tuple[Diagnostic, ...] = ()


def open_source(text: str, *, overrides: Sequence[str] = (), folder: Path | None = None) -> Source:
    """The model that `text` names: `FILE.py`, `FILE.py:NAME`, `FILE.yaml`, `package.module:NAME`,
    a page, or `REV:` before any of these.

    Files are relative to `folder` (the current one if left out), and so is the repository. A file
    that is there wins over a revision of that name. `overrides` (`config.FIELD=VALUE`) go into the
    spec, or into the numbers of the page's config: `sources/page_numbers.py`.

    Raises `SpecError`: SP610 and SP611 as `parse_target`, SP612 to SP615 for revisions, SP616 where
    a page is given with a spec's name, what compiling the spec raises, and what the user's code
    does.
    """
    folder = folder or Path()
    page = open_page(text, overrides=overrides, folder=folder)
    if page is not None:
        return page
    revised = None if _is_there(text, folder) else parse_revision(text)
    if revised is None:
        target = parse_target(text, folder)
        return _spec(_shown(target), target, overrides)
    source = _compiled(text, revised, find(revised, folder), overrides)
    return dataclasses.replace(source, path=None)


def open_page(
    text: str, *, overrides: Sequence[str] = (), folder: Path | None = None
) -> Source | None:
    """The page that `text` names, now or at a revision; None where it names a spec.

    Raises as `open_source`.
    """
    folder = folder or Path()
    revised = None if _is_there(text, folder) else parse_revision(text)
    if revised is not None:
        at_revision = find(revised, folder).text
        if revised.place.endswith(".py") and at_revision is not None and is_page(at_revision):
            _refuse_name(text, revised.name)
            return _page(text, at_revision, overrides, None)
        return None
    target = parse_target(text, folder)
    if target.is_yaml or target.module is not None or not is_page(page := _read(target.file)):
        return None
    _refuse_name(text, target.name)
    return _page(shown_path(target.file), page, overrides, target.file)


def _is_there(text: str, folder: Path) -> bool:
    """Whether a text is a file's name, colons and all, with or without the name of a spec."""
    return any((folder / place).is_file() for place in (text, split_name(text)[0]))


def _compiled(text: str, revised: Revised, found: Found, overrides: Sequence[str]) -> Source:
    from .checkout import checked_out

    with checked_out(found, revised.revision) as tree:
        if found.path is not None:
            target = file_target(tree / found.path, revised.name)
        else:
            target = parse_target(f"{revised.place}:{revised.name}")
            if not target.file.resolve().is_relative_to(tree):
                refuse_module(revised)
        source = _spec(text, target, overrides)
        return dataclasses.replace(source, origin=with_overrides(text, tuple(overrides)))


def _refuse_name(text: str, name: str | None) -> None:
    if name is not None:
        fail(
            "SP616",
            f"`{text}` asks for `{name}` in a file that is a page: it holds one model, which has "
            "no name",
            help=f"leave `:{name}` out",
        )


def _page(name: str, text: str, overrides: Sequence[str], path: Path | None) -> Source:
    if overrides:
        from .page_numbers import set_numbers

        text = set_numbers(text, overrides)
    return Source(name, "page", text, origin_of(text), path)


def _spec(name: str, target: Target, overrides: Sequence[str]) -> Source:
    from ..generate import generate

    generated = generate(target, overrides, validate=False)
    origin = generated.target.origin(Path.cwd())
    return Source(
        name,
        "spec",
        generated.compiled.body,
        with_overrides(origin, generated.overrides),
        target.file,
        generated.warnings,
    )


def _shown(target: Target) -> str:
    place = shown_path(target.file) if target.module is None else target.module
    return f"{place}:{target.name}" if target.name else place


def _read(file: Path) -> str:
    from ..write import read_page

    return read_page(file)
