"""Page: the classes, their imports, the config and the entry point laid out as one file."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import black
import jinja2
import libcst as cst
from black.mode import TargetVersion
from torch import nn

from specc.runtime import Mesh

from . import stages, tree
from .calls import drop_defaults, forward_calls, shaped
from .construct import POSITIONAL, written
from .facts import Facts
from .kinds import Kind
from .long_comments import lift_long_comments
from .names import Needs, collect, line_for, need_for_function
from .page_config import PageConfig
from .pattern import handle_of
from .residual import Residual
from .source import is_ours
from .survivors import refuse_words
from .title import title_and_facts
from .unify import shaped_for_all
from .value import is_config

# The look of the page, whatever the project's own settings; the source's trailing commas do not
# decide it.
BLACK = black.Mode(
    line_length=100, magic_trailing_comma=False, target_versions={TargetVersion.PY311}
)


def finish(
    residuals: dict[Kind, Residual], names: dict[Kind, str], configs: dict[str, str], facts: Facts
) -> PageConfig:
    """Give every call its final form and every class its name, in place; returns what is read of
    the config.
    """
    for residual in residuals.values():
        _edit(residual, lambda c, r=residual: _final_call(c, r, residuals, facts))  # type: ignore[misc]
        _drop_forward_defaults(residual, residuals, facts)
    replaced = {kind.handle: name for kind, name in names.items()} | configs | facts.pattern_names
    page_config = PageConfig(facts)
    page_config.scan(node for r in residuals.values() for node in r.text())
    for residual in residuals.values():
        _finish_names(residual, replaced, page_config, facts)
    return page_config


def render(
    residuals: dict[Kind, Residual],
    names: dict[Kind, str],
    configs: dict[str, str],
    page_config: PageConfig,
    facts: Facts,
    loss: str | None,
) -> tuple[str, tuple[str, ...]]:
    """The page's text below its header, formatted, and the names on it whose code isn't specc's."""
    needs = collect(residuals, facts, names, set(configs.values()))
    page_config.scan_names(facts.read_by_name)
    for method, owner in page_config.methods():
        need_for_function(method, owner, facts, needs)
    config_texts = page_config.classes(configs, lambda node: tree.code(node).strip("\n"))
    root = facts.kinds.root
    root_call = _root_call(residuals[root], names[root], configs, facts)
    for name in ("Mesh", "materialize"):
        needs.imports[name] = f"from specc.runtime import {name}"
    if config_texts:
        needs.imports["dataclass"] = "from dataclasses import dataclass"
    for residual in residuals.values():
        _need_base(residual.flat.base, needs)
    classes = [tree.code(class_node(residuals[kind], names[kind])) for kind in residuals]
    body = "\n".join(classes)
    title, lines = title_and_facts(residuals, names, facts, page_config)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            Path(sys.modules["specc.templates"].__file__ or "").parent / "page"
        ),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template("page.j2").render(
        title=title,
        facts=lines,
        legend="[b, " in body,
        experts="[b, t, k]" in body,
        imports=import_groups(needs),
        loss=loss,
        stages=stages.MARK,
        configs=config_texts,
        helpers=[tree.code(s).strip("\n") for s in needs.copied.values()],
        classes=[c.strip("\n") for c in classes],
        root=names[root],
        root_call=root_call,
    )
    refuse_words(text)
    text = stages.stated(text, facts.recording.root, names[root], facts.notes)
    return black.format_str(text, mode=BLACK), _authored(residuals, names, needs)


def _authored(
    residuals: dict[Kind, Residual], names: dict[Kind, str], needs: Needs
) -> tuple[str, ...]:
    """Classes and functions on the page that are the author's, and what it imports of others'."""
    classes = [
        names[kind]
        for kind, residual in residuals.items()
        if not all(is_ours(cls.__module__) for cls in residual.flat.chain)
    ]
    known = ("torch", "specc", *sys.stdlib_module_names)
    imported = [n for n, line in needs.imports.items() if _package(line) not in known]
    return tuple(dict.fromkeys([*imported, *sorted(needs.authored), *classes]))


def _package(line: str) -> str:
    """The package that an import line names."""
    return line.split()[1].partition(".")[0]


# -------------------------------------------------------------------- final form of calls


def _edit(residual: Residual, change: Callable[[cst.Call], cst.Call]) -> None:
    """Apply `change` to every call, inner calls first."""

    def visit(node: Any) -> Any:
        node = tree.rebuild(node, visit)
        return change(node) if isinstance(node, cst.Call) else node

    if residual.init is not None:
        residual.init = visit(residual.init)
    for name, method in residual.methods.items():
        residual.methods[name] = visit(method)


def _final_call(
    call: cst.Call, residual: Residual, residuals: dict[Kind, Residual], facts: Facts
) -> cst.Call:
    if handle_of(call, facts) is not None:
        return shaped_for_all(call, residuals, facts)
    kind = facts.kinds.by_handle(call.func.value) if isinstance(call.func, cst.Name) else None
    if kind is not None:
        return shaped(call, [p.name.value for p in residuals[kind].parameters()])
    callee = _callee(call.func, residual, facts)
    if callee is None:
        return call
    if _marked(call):
        call = shaped(call, list(inspect.signature(callee).parameters))
    return drop_defaults(call, callee, facts)


def _marked(call: cst.Call) -> bool:
    """Whether we wrote this call: its arguments are marked as they stood in the author's."""
    return any(a.keyword is not None and a.keyword.value.startswith(POSITIONAL) for a in call.args)


def _callee(func: cst.BaseExpression, residual: Residual, facts: Facts) -> Any:
    """The imported class or function that a dotted name stands for, else None."""
    dotted = tree.dotted(func)
    if dotted is None:
        return None
    first, *rest = dotted.split(".")
    if first in _local_names(residual):
        return None  # a local may hide what the module calls by that name
    thing = facts.imports.get(first)
    if thing is None:
        for owner in residual.flat.chain:
            thing = vars(sys.modules[owner.__module__]).get(first)
            if thing is not None:
                break
    for name in rest:
        if not isinstance(thing, (type(sys), type)):
            return None
        thing = getattr(thing, name, None)
    return thing if callable(thing) else None


def _local_names(residual: Residual) -> set[str]:
    """Every name that a function of the class binds, in any of them."""
    return set().union(*(_bound_names(function) for function in residual.functions()))


@functools.lru_cache(maxsize=4096)
def _bound_names(function: cst.FunctionDef) -> frozenset[str]:
    names = {n for item in tree.walk(function) for n in tree.bound_names(item)}
    for item in tree.walk(function):
        if isinstance(item, (cst.FunctionDef, cst.ClassDef)):
            names |= tree.stored_names(item.body) | {item.name.value}
        if isinstance(item, (cst.FunctionDef, cst.Lambda)):
            names |= {p.name.value for p in tree.every_parameter(item)}
    return frozenset(names)


def _drop_forward_defaults(
    residual: Residual, residuals: dict[Kind, Residual], facts: Facts
) -> None:
    """An argument folded to None, last in a call whose callee has None for its default."""
    swaps: dict[int, cst.Call] = {}
    for call, kinds in forward_calls(residual, facts):
        if not kinds <= residuals.keys() or not call.args:
            continue
        args = list(call.args)
        while (
            args
            and facts.is_folded(args[-1].value)
            and all(_is_default(args, residuals[k].methods.get("forward")) for k in kinds)
        ):
            args.pop()
        if len(args) < len(call.args):
            args = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in args]
            swaps[id(call)] = call.with_changes(args=args)
    if swaps:
        _edit_by_id(residual, swaps)


def _is_default(args: list[cst.Arg], forward: cst.FunctionDef | None) -> bool:
    if forward is None:
        return False
    arg, params = args[-1], list(forward.params.params[1:])
    named = arg.keyword.value if arg.keyword is not None else None
    param = next((p for p in params if p.name.value == named), None) if named else None
    if named is None and len(args) <= len(params):
        param = params[len(args) - 1]
    return (
        param is not None
        and param.default is not None
        and tree.code(param.default) == tree.code(arg.value)
    )


def _edit_by_id(residual: Residual, swaps: dict[int, cst.Call]) -> None:
    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        return swaps.get(id(node))

    for name, method in residual.methods.items():
        residual.methods[name] = tree.replace(method, swap)


# -------------------------------------------------------------------- names and annotations


def _finish_names(
    residual: Residual, names: dict[str, str], page_config: PageConfig, facts: Facts
) -> None:
    config_types = {
        c for config in facts.kinds.configs for c in type(config).__mro__ if c is not object
    }

    def annotation(node: Any) -> Any:
        """A config's class is `Config`; a class of ours that a child may be of is `nn.Module`."""
        if isinstance(node, cst.Name):
            for owner in residual.flat.chain:
                thing = vars(sys.modules[owner.__module__]).get(node.value)
                if isinstance(thing, type) and thing in config_types:
                    return cst.Name("Config")
                if (
                    isinstance(thing, type)
                    and issubclass(thing, nn.Module)
                    and thing.__module__.startswith("specc.templates")
                ):
                    facts.imports["nn"] = nn
                    return cst.Attribute(cst.Name("nn"), cst.Name("Module"))
            return node
        return tree.rebuild(node, annotation)

    def swap(node: Any) -> Any:
        if isinstance(node, cst.Annotation):
            return annotation(node)
        if isinstance(node, cst.Attribute):
            found = facts.config_reads.get(id(node))
            node = node.with_changes(value=swap(node.value))
            if found is not None and page_config.name_of(found[1]) != found[1]:
                node = node.with_changes(attr=cst.Name(page_config.name_of(found[1])))
            return node
        if isinstance(node, cst.Name) and node.value in names:
            return cst.Name(names[node.value])
        return tree.rebuild(node, swap)

    if residual.init is not None:
        residual.init = swap(residual.init)
    for name, method in residual.methods.items():
        residual.methods[name] = swap(method)


def _need_base(base: type, needs: Needs) -> None:
    if base is nn.Module:
        needs.imports.setdefault("nn", "from torch import nn")
    else:
        needs.imports.setdefault(base.__name__, line_for(base.__name__, base))


def class_node(residual: Residual, name: str) -> Any:
    """A finished class of the page, before it is formatted."""
    body: list[Any] = [] if residual.docstring is None else [residual.docstring]
    body += residual.attributes
    body += list(residual.functions())
    if body and hasattr(body[0], "leading_lines"):
        first = body[0]
        kept = list(first.leading_lines)
        while kept and kept[0].comment is None:
            kept.pop(0)
        body[0] = first.with_changes(leading_lines=kept)
    base = residual.flat.base
    shown: cst.BaseExpression = cst.Name(base.__name__)
    if base is nn.Module:
        shown = cst.Attribute(cst.Name("nn"), cst.Name("Module"))
    node = residual.flat.node
    comments = [line for line in node.leading_lines if line.comment is not None]
    whole = tree.with_body(node, body).with_changes(
        name=cst.Name(name), bases=[cst.Arg(shown)], keywords=[], leading_lines=comments
    )
    return lift_long_comments(whole, 0)


# -------------------------------------------------------------------- around the classes


def _root_call(residual: Residual, name: str, configs: dict[str, str], facts: Facts) -> str:
    """How `build_model` makes the top module."""
    built = residual.kind.built[0]
    args: list[cst.Arg] = []
    for param in residual.parameters():
        parameter = param.name.value
        value = built.arguments.get(parameter)
        if parameter in ("mesh", "parallel_mesh") and (value is None or isinstance(value, Mesh)):
            expression: cst.BaseExpression = cst.Name("mesh")
        elif is_config(value) or (
            parameter in ("config", "model_config") and parameter not in built.arguments
        ):
            index = facts.kinds.config_index(value) if is_config(value) else 0
            expression = (
                cst.Name("config")
                if index == 0
                else cst.Call(cst.Name(configs[f"_Config{index}_"]))
            )
        elif parameter in built.given:
            expression = written(value, parameter, built, facts)
        else:
            continue
        args.append(cst.Arg(expression, keyword=cst.Name(parameter)))
    call = shaped(cst.Call(cst.Name(name), args), [p.name.value for p in residual.parameters()])
    return tree.code(call)


def import_groups(needs: Needs) -> list[list[str]]:
    """Import lines by origin (future, standard library, others, specc), each name once, sorted as
    ruff sorts them.
    """
    plain: set[str] = set()
    members: dict[str, set[str]] = {}
    for line in needs.imports.values():
        if line.startswith("import "):
            plain.add(line)
        else:
            source, _, name = line[5:].partition(" import ")
            members.setdefault(source, set()).add(name)
    groups: dict[int, list[str]] = {1: [], 2: [], 3: []}

    def origin(line: str) -> int:
        root = line.split()[1].partition(".")[0]
        return 3 if root == "specc" else 1 if root in sys.stdlib_module_names else 2

    for line in sorted(plain, key=lambda text: text.split()[1]):
        groups[origin(line)].append(line)
    for source in sorted(members):
        shown = ", ".join(sorted(members[source], key=_member_order))
        line = f"from {source} import {shown}"
        groups[origin(line)].append(line)
    head = [["from __future__ import annotations"]] if needs.future else []
    return head + [g for g in groups.values() if g]


def _member_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff gives."""
    bare = name.split(" as ")[0]
    rank = 0 if bare.isupper() and len(bare) > 1 else 1 if bare[:1].isupper() else 2
    return rank, bare
