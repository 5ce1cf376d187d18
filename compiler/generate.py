"""From a target to a page's body: read the spec, set the overrides, compile."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specc.templates.diagnostic import Diagnostic

from .diagnostics import shown_path
from .errors import span_of_class
from .fingerprint import library_hash, spec_hash, unseen_classes
from .header import make_header
from .load import load_spec
from .overrides import apply_overrides
from .pipeline import Compiled, compile_spec
from .target import Target

if TYPE_CHECKING:
    from .pipeline import Translated


@dataclass(frozen=True)
class Generated:
    """A compiled spec, the target with its name filled in, and what else the user should know."""

    compiled: Compiled
    target: Target
    overrides: tuple[str, ...]
    validated: bool
    warnings: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...]

    @property
    def validation(self) -> str:
        """The outcome of the validation in a word or two; what it left out stands in the notes."""
        if not self.validated:
            return "not validated"
        limited = any(note.code.startswith("SP5") for note in self.notes)
        return "validated as far as the notes say" if limited else "validated"

    def page(self, path: Path) -> str:
        """The whole text of the page that is to stand at `path`: header and body."""
        body = self.compiled.body
        header = make_header(
            origin=self.target.origin(path.resolve().parent),
            overrides=self.overrides,
            spec=spec_hash(self.target.file, self.overrides, self.target.name),
            library=library_hash(self.target.file, body),
            body=body,
            authored=self.compiled.authored,
        )
        return header.render() + body


def generate(target: Target, overrides: Sequence[str] = (), *, validate: bool = True) -> Generated:
    """Compile the spec at `target`. What the user's code prints goes to stderr.

    Raises `SpecError`, or what the user's code raises.
    """
    loaded = load_spec(target)
    spec, warnings = apply_overrides(loaded.spec, overrides)
    with contextlib.redirect_stdout(sys.stderr):
        compiled = compile_spec(spec, validate=validate)
    notes = [*compiled.notes, *_unseen(compiled, target)]
    return Generated(
        compiled, loaded.target, tuple(overrides), validate, tuple(warnings), tuple(notes)
    )


def trace(target: Target, overrides: Sequence[str] = ()) -> Translated:
    """The page of the spec at `target`, not validated, with what it was made from.

    Raises as `generate`.
    """
    from .pipeline import trace_spec

    spec, _ = apply_overrides(load_spec(target).spec, overrides)
    with contextlib.redirect_stdout(sys.stderr):
        return trace_spec(spec)


def _unseen(compiled: Compiled, target: Target) -> list[Diagnostic]:
    """Notes on classes that neither hash of the header covers."""
    return [
        Diagnostic(
            "SP605",
            f"no import statement in `{shown_path(target.file)}` or in what it imports leads to "
            f"`{cls.__module__}.{cls.__qualname__}`",
            span=span_of_class(cls),
            help="import it by name, so that `specc check` sees when it changes",
        )
        for cls in unseen_classes(compiled.classes, target.file)
    ]
