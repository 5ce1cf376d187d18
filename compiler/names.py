"""Names: what the page's text reads from outside itself, and the line or the code that brings
it."""

from __future__ import annotations

import builtins
import dataclasses
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NoReturn

import libcst as cst
from torch import nn

import specc.runtime
from specc.templates.diagnostic import Span

from . import tree
from .copied import binders, refuse_rebound, statement_of
from .errors import refuse, span_of_class
from .facts import Facts
from .kinds import Kind
from .residual import Residual
from .scopes import annotation_names, free_names
from .source import SourceFile, is_foldable, is_foldable_module, is_ours

# What the page itself binds, by name; None where it is the page's own.
RESERVED: dict[str, Any] = {
    "Config": None,
    "LOSS": None,
    "LAYERS": None,
    "FIRST_STAGE": None,
    "LAST_STAGE": None,
    "NO_STAGES": None,
    "Mesh": specc.runtime.Mesh,
    "build_model": None,
    "dataclass": dataclasses.dataclass,
    "materialize": specc.runtime.materialize,
}


@dataclass
class Needs:
    """Imports by the name that they bind, and the functions and constants that the page holds
    itself."""

    imports: dict[str, str] = field(default_factory=dict)
    copied: dict[str, Any] = field(default_factory=dict)  # name -> statement, in the order needed
    authored: set[str] = field(default_factory=set)  # functions that are copied and not specc's
    future: bool = False  # an annotation relies on `from __future__ import annotations`
    _objects: dict[str, Any] = field(default_factory=lambda: dict(RESERVED))
    _copying: set[str] = field(default_factory=set)  # functions that call each other

    def import_line(self, name: str, line: str, thing: Any, span: Span | None) -> None:
        self.claim(name, thing, span)
        self.imports[name] = line

    def claim(self, name: str, thing: Any, span: Span | None) -> None:
        """Bind a name of the page. Raises CompileError where it is bound to something else
        already."""
        known = self._objects.setdefault(name, thing)
        plain = (
            isinstance(known, (bool, int, float, str, tuple))
            and type(known) is type(thing)
            and known == thing
        )
        if known is thing or (plain and name not in RESERVED):
            return
        if name in RESERVED:
            refuse_reserved(name, span)
        refuse(
            "SP404",
            f"`{name}` means two things in the classes of this model, and a page has one set of "
            f"names",
            span,
            help=f"rename one of the two `{name}`",
        )


def refuse_reserved(name: str, span: Span | None) -> NoReturn:
    refuse(
        "SP404", f"`{name}` is a name that the page uses itself", span, help=f"rename your `{name}`"
    )


def collect(
    residuals: dict[Kind, Residual], facts: Facts, names: dict[Kind, str], configs: set[str]
) -> Needs:
    """Everything that the classes read and do not define; `names` are those that they have on the
    page."""
    needs = Needs()
    taken = set(names.values()) | configs
    for name in taken:
        needs.claim(name, name, None)
    defined: set[str] = {"Config"} | configs
    for kind, residual in residuals.items():
        for name in sorted(outside_names(residual)):
            if name != "Config" and name not in taken:
                _need(name, residual, facts, needs)
        # A class that an annotation names is not there yet while its own body runs.
        notes = {n for f in residual.functions() for n in annotation_names(f)}
        needs.future |= bool(notes & taken - defined)
        defined.add(names[kind])
    return needs


def page_names(residuals: dict[Kind, Residual], facts: Facts) -> set[str]:
    """Names that a page will bind to other things than its classes: no class may take one of
    them."""
    names = {*RESERVED, *facts.imports, *(h.name for h in facts.helpers)}
    for residual in residuals.values():
        names.add(residual.flat.base.__name__)
        names |= {
            n
            for n in outside_names(residual)
            if not _is_stand_in(n) and not is_written_class(n, residual)
        }
    return names


def is_written_class(name: str, residual: Residual) -> bool:
    """Whether a name is a module class that the page would write out, where this class's text
    stands."""
    for owner in residual.flat.chain:
        thing = vars(sys.modules[owner.__module__]).get(name)
        if isinstance(thing, type) and issubclass(thing, nn.Module) and is_foldable(thing):
            return True
    return False


def _is_stand_in(name: str) -> bool:
    return name.startswith(("_Kind", "_Config", "_Pattern")) and name.endswith("_")


def outside_names(residual: Residual) -> set[str]:
    """Names that a class's text reads from its module."""
    of_class = {n for a in residual.attributes for n in tree.stored_names(a)} | set(
        residual.methods
    )
    names: set[str] = set()
    for statement in residual.attributes:
        names |= free_names(statement).outside - of_class | free_names(statement).inside
    for function in residual.functions():
        free = free_names(function)
        names |= free.outside - of_class | free.inside
    return {n for n in names if not hasattr(builtins, n) or _rebinds_builtin(n, residual)}


def _rebinds_builtin(name: str, residual: Residual) -> bool:
    """Whether the author's module has a name of its own that hides a builtin."""
    return any(name in vars(sys.modules[owner.__module__]) for owner in residual.flat.chain)


def _need(name: str, residual: Residual, facts: Facts, needs: Needs) -> None:
    span = where(name, residual, facts)
    modules = [sys.modules[owner.__module__] for owner in residual.flat.chain]
    having = [m for m in modules if name in vars(m)]
    things = [vars(m)[name] for m in having]
    if name in facts.imports:
        thing = facts.imports[name]
        if any(
            t is not thing and not (isinstance(t, type) and issubclass(t, nn.Module))
            for t in things
        ):
            needs.claim(name, thing, span)
            needs.claim(name, things[0], span)
        needs.import_line(name, line_for(name, thing), thing, span)
        return
    for node in residual.text():
        _refuse_class_asked(name, node, modules, facts)
    if having:
        if any(thing is not things[0] for thing in things):
            refuse(
                "SP404",
                f"`{name}` is one thing in `{having[0].__name__}` and another in the module of a "
                f"base of "
                f"`{residual.kind.cls.__name__}`",
                span,
                help=f"rename one of the two `{name}`",
            )
        _need_from(name, having[0], facts, needs, span)
        return
    for owner in residual.flat.chain:
        file = facts.sources.of(owner)
        if (
            file is not None and name in file.imports
        ):  # under TYPE_CHECKING: a name for annotations alone
            needs.future = True
            needs.imports[name] = file.imports[name]
            return
    refuse(
        "SP405",
        f"`{residual.kind.cls.__name__}` reads `{name}`, which its module does not define",
        span,
        help="define it at the top level of the file, or import it",
    )


def where(name: str, residual: Residual, facts: Facts) -> Span | None:
    """A line of the author's that reads a name."""
    for node in residual.text():
        for item in tree.walk_loads(node):
            if isinstance(item, cst.Name) and item.value == name:
                span = facts.sources.span(item, *residual.flat.chain)
                if span is not None:
                    return span
    return span_of_class(residual.kind.cls)


def _need_from(
    name: str, module: ModuleType, facts: Facts, needs: Needs, span: Span | None
) -> None:
    """A name as this module binds it: imported again, or copied where it is the author's own."""
    thing = vars(module)[name]
    if hasattr(specc.runtime, name) and getattr(specc.runtime, name) is thing:
        needs.import_line(name, f"from specc.runtime import {name}", thing, span)
        return
    path = getattr(module, "__file__", None)
    file = facts.sources.file(path) if path else None
    if file is not None and name in file.imports:
        _check_import(name, thing, file, module, span)
        line = file.imports[name]
        source = _module_imported(line, module)
        if isinstance(thing, ModuleType):
            if is_foldable_module(thing.__name__) and thing.__name__ != "__main__":
                refuse(
                    "SP406",
                    f"the page would have to hold the code of the module `{name}`",
                    span,
                    help=f"import the names that are used: from {thing.__name__} import ...",
                )
            needs.import_line(name, line, thing, span)
            return
        if source is None or not is_foldable_module(source):
            needs.import_line(name, line, thing, span)
            return
        original = line.split(" import ")[1].split(" as ")[0].strip()
        if original != name:
            refuse(
                "SP406",
                f"`{name}` is `{original}` of `{source}` under another name, and the page holds "
                f"its code",
                span,
                help=f"import it as `{original}`",
            )
        _need_from(name, sys.modules[source], facts, needs, span)
        return
    if isinstance(thing, type) and issubclass(thing, nn.Module):
        refuse_class_read(name, span)
    _copy(name, thing, module, facts, needs, span)


def refuse_class_read(name: str, span: Span | None) -> NoReturn:
    refuse(
        "SP407",
        f"the class `{name}` is read other than by building it",
        span,
        help="ask about an option of the config instead of a class",
    )


_MISSING = object()


def _check_import(
    name: str, thing: Any, file: SourceFile, module: ModuleType, span: Span | None
) -> None:
    """The import statement must be what bound the name."""
    line = file.imports[name]
    source = _module_imported(line, module)
    if source is not None:
        original = line.split(" import ")[1].split(" as ")[0].strip()
        found = getattr(
            sys.modules.get(source), original, sys.modules.get(f"{source}.{original}", _MISSING)
        )
    else:
        imported = line[len("import ") :].split(" as ")
        found = sys.modules.get(imported[0] if len(imported) > 1 else imported[0].partition(".")[0])
    if found is not thing or binders(name, file) > 1:
        refuse_rebound(
            name, "is not what the import statement binds, or one of several statements", span
        )


def _copy(
    name: str, thing: Any, module: ModuleType, facts: Facts, needs: Needs, span: Span | None
) -> None:
    needs.claim(name, thing, span)
    if name in needs.copied or name in needs._copying:
        return
    file = facts.sources.file(str(module.__file__))
    node: Any = statement_of(name, thing, module, file, span)
    needs._copying.add(name)
    if callable(thing) and not is_ours(module.__name__):
        needs.authored.add(name)
    node = plain_annotations(node, [module], facts)
    for other in sorted(free_names(node).all):
        if other in (name, _PAGE_CONFIG):
            continue
        _refuse_class_asked(other, node, [module], facts)
        if other in vars(module):
            _need_from(other, module, facts, needs, file.span(node))
        elif not hasattr(builtins, other):
            needs.future = True  # a name for annotations alone
            if other in file.imports:
                needs.imports[other] = file.imports[other]
    needs.copied[name] = tree.replace(
        node,
        lambda n: (
            cst.Name("Config") if isinstance(n, cst.Name) and n.value == _PAGE_CONFIG else None
        ),
    )


_PAGE_CONFIG = "_Config0_"


def plain_annotations(node: Any, modules: list[ModuleType], facts: Facts) -> Any:
    """Text whose annotations name what the page has: a config's class is `Config` (by a stand-in,
    as the author may have a `Config` of his own), a class of modules, which the page may call by
    another name, is `nn.Module`."""

    def annotation(item: Any) -> Any:
        if isinstance(item, cst.Name):
            for module in modules:
                thing = vars(module).get(item.value)
                if facts.is_config_class(thing):
                    return cst.Name(_PAGE_CONFIG)
                if isinstance(thing, type) and issubclass(thing, nn.Module) and is_foldable(thing):
                    facts.imports["nn"] = nn
                    return cst.Attribute(cst.Name("nn"), cst.Name("Module"))
            return item
        return tree.rebuild(item, annotation)

    return tree.replace(
        node, lambda item: annotation(item) if isinstance(item, cst.Annotation) else None
    )


def _refuse_class_asked(
    name: str, node: cst.CSTNode, modules: list[ModuleType], facts: Facts
) -> None:
    """Whether something is of a config's class has another answer on the page, whose Config is a
    class of its own."""
    if not any(facts.is_config_class(vars(module).get(name)) for module in modules):
        return
    for item in tree.walk(node):
        asks = isinstance(item, cst.Call) and tree.dotted(item.func) in ("isinstance", "issubclass")
        if (asks or isinstance(item, cst.Comparison)) and name in set(tree.loaded_names(item)):
            refuse(
                "SP206",
                f"`{tree.code(item)}` asks for the class of a config, and the page's Config is "
                f"another class",
                next(
                    (
                        s
                        for m in modules
                        if (s := facts.sources.file(str(m.__file__)).span(item)) is not None
                    ),
                    None,
                ),
                help="ask about a field",
            )


def need_for_function(function: cst.FunctionDef, owner: type, facts: Facts, needs: Needs) -> None:
    """What a method that the page takes from a config's class reads."""
    module = sys.modules[owner.__module__]
    for name in sorted(free_names(function).all):
        if name in vars(module):
            _need_from(name, module, facts, needs, facts.sources.span(function, owner))


def line_for(name: str, thing: Any) -> str:
    """The import statement that binds a name to what the page does not hold itself."""
    if hasattr(specc.runtime, name) and getattr(specc.runtime, name) is thing:
        return f"from specc.runtime import {name}"
    if thing is nn:
        return "from torch import nn"
    if isinstance(thing, ModuleType):
        return f"import {thing.__name__}"
    return f"from {thing.__module__} import {name}"


def _module_imported(line: str, module: ModuleType) -> str | None:
    """The full name of the module that a `from ... import` takes from."""
    if not line.startswith("from "):
        return None
    source = line[5:].split(" import ")[0]
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    package = (module.__package__ or "").split(".")
    base = package[: len(package) - dots + 1]
    return ".".join([*base, source.lstrip(".")] if source.lstrip(".") else base)
