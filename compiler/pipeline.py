"""The pipeline: record, fold, prune, collapse, merge, page; then the page is validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from specc.runtime import Mesh
from specc.templates import ModuleSpec
from specc.templates.diagnostic import Diagnostic
from specc.templates.prepare import prepare
from specc.templates.spec import PreparedSpec, construct

from .collapse import collapse
from .config_values import follow_config_values
from .facts import Facts
from .kinds import Kind
from .loss import loss_kind
from .merge import config_names, merge
from .meta_kernels import without_dynamo
from .page import finish, render
from .page_config import PageConfig
from .prune import prune
from .record import Recording, record
from .residual import Residual, fold_all, tighten
from .shared_state import refuse_split_state
from .survivors import refuse_survivors
from .told_places import told_with_specs, with_places
from .unify import unify
from .unread import note_reads, refuse_unread


@dataclass(frozen=True)
class Compiled:
    """A page without its header, and what is to be said about it."""

    body: str
    notes: tuple[Diagnostic, ...]
    classes: tuple[type, ...]  # those whose source is on the page, for the library's hash
    parameters: int  # how many numbers the model learns
    authored: tuple[str, ...]  # what on the page is not specc's code, by its name there


@dataclass(frozen=True)
class Translated:
    """A page with all that it was made from: `specc why` asks where its lines come from."""

    compiled: Compiled
    facts: Facts
    residuals: dict[Kind, Residual]  # the finished classes, in the order of the page
    names: dict[Kind, str]
    configs: dict[str, str]  # names of all config classes but `Config`
    page_config: PageConfig


@without_dynamo()
def compile_spec(spec: ModuleSpec, *, validate: bool = True) -> Compiled:
    """The page of a spec.

    Raises SpecError for a mistake in the spec, CompileError where a class can't be written out
    faithfully, ValidationError where the page and the spec's own model differ.
    """
    prepared = prepare(spec)
    overruled: list[Diagnostic] = []
    compiled = translate(
        lambda: construct(prepared.spec, Mesh.single(), notes=overruled), prepared.reads
    )
    notes = (*prepared.notes, *overruled, *compiled.notes)
    if validate:
        from .validate import validate_page

        def recompile(other: PreparedSpec) -> str:
            return translate(lambda: construct(other, Mesh.single()), prepared.reads).body

        notes = (*notes, *validate_page(prepared.spec, compiled.body, recompile))
    return replace(compiled, notes=notes)


@without_dynamo()
def trace_spec(spec: ModuleSpec) -> Translated:
    """The page of a spec, not validated, with what it was made from. Raises as `compile_spec`."""
    prepared = prepare(spec)
    return _translate(lambda: construct(prepared.spec, Mesh.single()), prepared.reads)


def translate(build: Callable[[], nn.Module], reads: frozenset[str] = frozenset()) -> Compiled:
    """The page of the model that `build` makes, not validated; `reads` are fields that its spec
    read before.
    """
    return _translate(build, reads).compiled


def _translate(build: Callable[[], nn.Module], reads: frozenset[str]) -> Translated:
    recording = record(build)
    with told_with_specs(recording):
        return _written(recording, reads)


def _written(recording: Recording, reads: frozenset[str]) -> Translated:
    facts = Facts(recording)
    facts.read_by_spec = reads
    residuals = fold_all(facts)
    prune(residuals, facts)
    refuse_survivors(residuals, facts)
    follow_config_values(residuals, facts)
    collapse(residuals, facts)
    prune(residuals, facts)
    tighten(residuals, facts)
    unify(residuals, facts)
    note_reads(residuals, facts)
    names = merge(residuals, facts)
    refuse_split_state(residuals, facts)
    configs = config_names(facts)
    page_config = finish(residuals, names, configs, facts)
    body, authored = render(
        residuals, names, configs, page_config, facts, loss_kind(recording.root, facts.notes)
    )
    refuse_unread(facts)
    classes = {c: None for kind in facts.kinds.kinds for c in facts.flat(kind).chain}
    notes = tuple(with_places(note, recording) for note in facts.notes)
    compiled = Compiled(body, notes, tuple(classes), _parameters(recording), authored)
    return Translated(compiled, facts, residuals, names, configs, page_config)


def _parameters(recording: Recording) -> int:
    return sum(p.numel() for p in recording.root.parameters())
