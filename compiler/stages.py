"""Stages: where a pipeline may cut the model, found on the page and said on it.

On a cut page each forward on the way to the list of layers has visible tests: what runs on the
first stage stands under `mesh.first_stage`, what runs on the last one after a test of
`mesh.last_stage`. Our templates have them; in an author's class they are put where its data flow
allows it (`stage_flow`).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from specc.templates.diagnostic import Diagnostic, Span

from .errors import span_of_class
from .stage_flow import cut_forward
from .stage_guards import FIRST, LAST, insert_guards
from .stage_reads import NoCut, holds_parameters

MARK = "STAGES = None"  # stands on the page where its stages are to be stated


@dataclass(frozen=True)
class Stages:
    """What a page says of a pipeline's stages. ``layers`` are the paths of its lists of layers: the
    stages share out the first, the others are the last stage's. ``first`` and ``last`` name what
    only those stages hold; where the page cannot be cut they are empty and ``reason`` says why,
    with the statement that is in the way where it is one.
    """

    layers: tuple[str, ...]
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    reason: str | None = None
    statement: str | None = None


def cut(text: str, root: nn.Module, root_class: str) -> tuple[str, Stages | None]:
    """The page's text with the tests that a pipeline needs, and what to say of its stages.

    None where the model has no list of layers. The text stays as it is where the page cannot be
    cut.
    """
    paths = tuple(_lists(root))
    if not paths:
        return text, None
    try:
        if len(paths) > 1 and not _is_guarded(_forward(text, root_class)):
            raise NoCut(f"it has several lists of layers, {' and '.join(paths)}")
        return _cut(text, root, root_class, paths)
    except NoCut as why:
        return text, Stages(paths, reason=str(why), statement=why.statement)


def _forward(text: str, name: str) -> ast.FunctionDef:
    return _method(_class(_classes(text), name), "forward")


def stated(text: str, root: nn.Module, root_class: str, notes: list[Diagnostic]) -> str:
    """The page's text, cut, with what it says of its stages in the place of ``MARK``.

    Where it cannot be cut the page says so, and a note where a statement of the author's is in the
    way.
    """
    text, stages = cut(text, root, root_class)
    if stages is None:
        return text.replace(f"{MARK}\n", "", 1)
    if len(stages.layers) == 1:
        lines = [f'LAYERS = "{stages.layers[0]}"  # a pipeline\'s stages share them out']
    else:
        lines = [f"LAYERS = {stages.layers!r}  # a pipeline's stages share out the first"]
    if stages.reason is None:
        lines.append(f"FIRST_STAGE = {stages.first!r}  # what only its first stage holds")
        lines.append(f"LAST_STAGE = {stages.last!r}  # and only its last")
    else:
        lines.append(f"NO_STAGES = {stages.reason!r}  # why a pipeline cannot cut the model")
        if stages.statement is not None:
            notes.append(_note(stages.reason, type(root), stages.statement))
    return text.replace(MARK, "\n".join(lines), 1)


def _note(reason: str, cls: type, statement: str) -> Diagnostic:
    return Diagnostic(
        "SP412",
        f"the model cannot be cut into the stages of a pipeline: {reason}, in "
        f"`{statement.splitlines()[0]}`",
        span=_span(cls, statement),
        help="train it at pp 1, or let one value go from the first stage through the layers to the "
        "last",
    )


def _span(cls: type, statement: str) -> Span | None:
    """The author's line of a statement of the page, where it stands in the class as it is."""
    whole = span_of_class(cls)
    if whole is None:
        return None
    lines, first = inspect.getsourcelines(cls)
    for node in ast.walk(ast.parse(textwrap.dedent("".join(lines)))):
        if isinstance(node, ast.stmt) and ast.unparse(node) == statement:
            line = first + node.lineno - 1
            text = lines[node.lineno - 1].rstrip()
            return Span(whole.file, line, len(text) - len(text.lstrip()) + 1, len(text) + 1)
    return None  # of a class inside, or folded: the message has the statement


def _lists(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """The outermost module lists that hold parameters."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            if any(True for _ in child.parameters()):
                yield prefix + name
        else:
            yield from _lists(child, f"{prefix}{name}.")


def _cut(text: str, root: nn.Module, root_class: str, lists: tuple[str, ...]) -> tuple[str, Stages]:
    layers, *others = lists
    held: dict[str, list[str]] = {"first": [], "last": []}
    *way, _ = layers.split(".")
    module, name, prefix = root, root_class, ""
    activation: str | None = None  # the parameter of forward that the layers' input comes by
    classes = _classes(text)
    for index, attribute in enumerate(layers.split(".")):
        source = _class(classes, name)
        forward = _method(source, "forward")
        is_list = index == len(way)
        if not _is_guarded(forward):
            flow = cut_forward(forward, module, attribute, activation, is_list=is_list)
            text = insert_guards(text, name, flow)
            classes = _classes(text)
            source = _class(classes, name)
            forward = _method(source, "forward")
        own = {
            where: [f"{prefix}{part}" for part in found]
            for where, found in _held(forward, module).items()
        }
        held["first"] += own["first"]
        held["last"] = own["last"] + held["last"]  # the inner ones run before
        if not is_list:
            child = _built_class(source, attribute)
            activation = _handed_activation(forward, attribute, _class(classes, child))
            module, name, prefix = getattr(module, attribute), child, f"{prefix}{attribute}."
    first, last = (tuple(dict.fromkeys(held[key])) for key in ("first", "last"))
    _refuse_uncovered(root, (layers, *first, *last))
    _refuse_shared(root, layers)
    if shared := [name for name in others if not any(_under(name, place) for place in last)]:
        raise NoCut(f"it has several lists of layers, {layers} and {' and '.join(shared)}")
    return text, Stages(lists, first, last)


def _under(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}.")


def _classes(text: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def _class(classes: Mapping[str, ast.ClassDef], name: str) -> ast.ClassDef:
    if name not in classes:
        raise NoCut(f"{name}, which holds the layers, is no class of the page")
    return classes[name]


def _method(source: ast.ClassDef, name: str) -> ast.FunctionDef:
    for node in source.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise NoCut(f"{source.name} has no {name} of its own")


def _is_guarded(forward: ast.FunctionDef) -> bool:
    """Whether it has the tests: `self.mesh.last_stage`, not an author's `self.last_stage`."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in (FIRST, LAST)
        and isinstance(node.value, ast.Attribute)
        for node in ast.walk(forward)
    )


def _built_class(source: ast.ClassDef, attribute: str) -> str:
    """The class that the constructor builds for an attribute."""
    for node in ast.walk(_method(source, "__init__")):
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == f"self.{attribute}"
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
        ):
            return node.value.func.id
    raise NoCut(f"{source.name} does not build its {attribute} in one plain statement")


def _handed_activation(forward: ast.FunctionDef, attribute: str, child: ast.ClassDef) -> str | None:
    """The parameter of the child's forward that is given what goes from layer to layer.

    It is the first one: `cut_forward` has seen to that, and our templates are written so.
    """
    names = [a.arg for a in _method(child, "forward").args.args if a.arg != "self"]
    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"self.{attribute}":
            if node.args:
                return names[0] if names else None
            return node.keywords[0].arg if node.keywords else None
    raise NoCut(f"forward does not call self.{attribute}")


def _held(forward: ast.FunctionDef, module: nn.Module) -> dict[str, list[str]]:
    """The parts with parameters that are read for the first stage and for the last one."""
    found: dict[str, list[str]] = {"first": [], "last": []}
    last = False
    for statement in forward.body:
        if last:
            found["last"] += _parts_read(statement, module)
        for node in ast.walk(statement):
            if isinstance(node, ast.If | ast.IfExp) and FIRST in ast.unparse(node.test):
                body = node.body if isinstance(node.body, list) else [node.body]
                for part in body:
                    found["first"] += _parts_read(part, module)
        last = last or (
            isinstance(statement, ast.If)
            and ast.unparse(statement.test).startswith("not ")
            and LAST in ast.unparse(statement.test)
        )
    return found


def _parts_read(node: ast.AST, module: nn.Module) -> list[str]:
    """The module's own parameters, and children with parameters, that a piece of code names."""
    return [
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and ast.unparse(inner.value) == "self"
        and holds_parameters(module, inner.attr)
    ]


def _refuse_uncovered(root: nn.Module, places: tuple[str, ...]) -> None:
    for name, _ in root.named_parameters():
        if not any(_under(name, place) for place in places):
            raise NoCut(f"parameter {name} belongs to no one stage")


def _refuse_shared(root: nn.Module, layers: str) -> None:
    """Only the first stage and the last may have a parameter in common."""
    homes: dict[int, dict[str, str]] = {}  # of each parameter: its layer, or "", and a name there
    for name, parameter in root.named_parameters(remove_duplicate=False):
        layer = name.removeprefix(f"{layers}.").split(".")[0] if _under(name, layers) else ""
        homes.setdefault(id(parameter), {}).setdefault(layer, name)
    for home in homes.values():
        if len(home) > 1:
            one, other, *_ = home.values()
            raise NoCut(f"{one} and {other} are one parameter, of stages that are not the ends")
