"""ModuleSpec, and how a tree of them is built.

`build_module` is what templates and users call, at the root and inside constructors. At the root
it prepares the tree (`prepare.py`), then runs the constructors through `specc.runtime.materialize`,
so that initial values depend on the seed and on names alone. Inside a constructor it builds one
child. Who passes what:

- a child that the parent's constructor has a parameter for is handed built;
- a constructor with a parameter `submodules` is handed the rest as specs;
- `mesh` and `config` are handed to every constructor that has a parameter of that name;
- what the parent passes wins over `params`, `config` apart: a node's own config holds for it and
  for the nodes under it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

from specc.runtime import Mesh, materialize

from .diagnostic import Diagnostic, Span, SpecError, call_span
from .spans import asking_span, narrowed, parameter_span

Node = Any
"""A ModuleSpec, a class, a function, a partial of a class, a (module, name) pair, or None."""

OFFERED = frozenset({"config", "layer_number", "hidden_size", "eps", "heads"})
"""What a parent offers any child; a constructor without a parameter of that name does without."""

_SKIPPED = frozenset({__file__, dataclasses.__file__, functools.__file__})
_log = logging.getLogger("specc.templates")


@dataclass(eq=False)
class ModuleSpec:
    """What stands at one place of a model.

    `module` is a class, a function (handed on unbuilt), or a ``("package.module", "Name")`` pair;
    `params` are constructor arguments; `submodules` are the children, a dict by name or a
    dataclass; `metainfo` is the user's. `span` is the place that made the spec, for messages.
    """

    module: Node
    params: dict[str, Any] = field(default_factory=dict)
    submodules: Any = None
    metainfo: dict[str, Any] = field(default_factory=dict)
    span: Span | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.span is None:
            self.span = call_span(sys._getframe(1), _SKIPPED, width=len("ModuleSpec"))

    def build_module(
        self,
        *args: Any,
        mesh: Mesh | None = None,
        seed: int = 0,
        device: str = "cpu",
        **kwargs: Any,
    ) -> Any:
        """The module, its initial values a function of `seed` and of names.

        Inside a constructor, where a build is in progress, that build's mesh, seed and device hold.
        Raises SpecError with every mistake that is found in the tree.
        """
        if _BUILD.get() is not None:
            if mesh is not None:
                kwargs["mesh"] = mesh
            return build_module(self, *args, **kwargs)
        return _build_root(self, args, kwargs, mesh or Mesh.single(), seed, device)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.build_module(*args, **kwargs)


@dataclass(eq=False)
class PreparedSpec(ModuleSpec):
    """A spec that `prepare` has checked and completed: its `module` is a class or a function.

    `submodules` is what the constructor's parameter of that name is handed, `children` are handed
    built under their names, `path` is the place in the tree, `config_in_force` the node's own
    config or the nearest one above it.
    """

    children: dict[str, PreparedSpec] = field(default_factory=dict)
    path: str = ""
    config_in_force: Any = None
    origin: ModuleSpec | None = None


@dataclass(frozen=True)
class _Build:
    mesh: Mesh
    config: Any
    node: PreparedSpec | None = None
    notes: list[Diagnostic] = field(default_factory=list)  # what the parents overrule


_BUILD: ContextVar[_Build | None] = ContextVar("specc_build", default=None)


def build_module(spec: Node, *args: Any, **kwargs: Any) -> Any:
    """The module that a node describes; a function stands for itself.

    The arguments are what only the caller knows. At the root, a `mesh` among them is the build's.
    Raises SpecError for a mistake in the spec; what a constructor raises comes through, with a
    note of the place in the tree.
    """
    build = _BUILD.get()
    if build is None:
        mesh = kwargs.pop("mesh", None) or Mesh.single()
        return _build_root(spec, args, kwargs, mesh, seed=0, device="cpu")
    if spec is None:  # Megatron's way to say that there is none
        from .identity import IdentityOp

        spec = IdentityOp
    return _construct(_prepared(spec, build.config, args, kwargs), args, kwargs, build)


def get_submodules(spec: Node) -> Any:
    """The children that a node names: a dict, a dataclass, or None."""
    if isinstance(spec, functools.partial):
        return spec.keywords.get("submodules")
    return getattr(spec, "submodules", None)


def construct(
    spec: PreparedSpec,
    mesh: Mesh,
    *args: Any,
    notes: list[Diagnostic] | None = None,
    **kwargs: Any,
) -> Any:
    """Runs the constructors of a prepared tree, and nothing else: no initial values are made.

    `notes` takes what is to be said of params that a parent overruled.
    """
    return _construct(spec, args, kwargs, _Build(mesh, None, notes=[] if notes is None else notes))


def being_built() -> PreparedSpec | None:
    """The node whose constructor runs, or whose children are built for it; None outside a build."""
    build = _BUILD.get()
    return None if build is None else build.node


def norm_slot() -> Any:
    """A dataclass field for a norm: identity where a dataclass leaves it out, as in Megatron;
    built from `config.normalization` where a dict does."""
    from .identity import IdentityOp

    return field(default=IdentityOp, metadata={"unnamed": "norm"})


def required_slot() -> Any:
    """A dataclass field for a child that a dict has to name; a dataclass may leave it out."""
    from .identity import IdentityOp

    return field(default=IdentityOp, metadata={"unnamed": "required"})


def constructor_parameters(target: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of a class's constructor, `self` apart."""
    return inspect.signature(target).parameters


def accepts(parameters: Mapping[str, Parameter], name: str) -> bool:
    """Whether a constructor takes an argument of this name."""
    found = parameters.get(name)
    if found is not None and found.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
        return True
    return any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def is_config(thing: Any) -> bool:
    """Whether this is one of our configs."""
    from .config import ModelParallelConfig

    return isinstance(thing, ModelParallelConfig)


def _build_root(
    spec: Node, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: Mesh, seed: int, device: str
) -> Any:
    root = _prepared(spec, None, args, kwargs, log=True)
    if not isinstance(root.module, type):
        return root.module
    notes: list[Diagnostic] = []
    module = materialize(
        lambda: construct(root, mesh, *args, notes=notes, **kwargs), mesh, seed=seed, device=device
    )
    for note in notes:
        _log.info("%s", note)
    return module


def _prepared(
    spec: Node, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, log: bool = False
) -> PreparedSpec:
    if isinstance(spec, PreparedSpec):
        return spec
    from .prepare import prepare

    passed = kwargs.get("config", args[0] if args and is_config(args[0]) else None)
    prepared = prepare(spec, config=passed or config, passed=(len(args), frozenset(kwargs)))
    if log:
        for note in prepared.notes:
            _log.info("%s", note)
    return prepared.spec


def _construct(
    node: PreparedSpec, args: tuple[Any, ...], kwargs: dict[str, Any], build: _Build
) -> Any:
    target = node.module
    if not isinstance(target, type):
        return target
    if args and is_config(args[0]):
        args, kwargs = args[1:], {"config": args[0], **kwargs}
    # A node's own config wins over the one that its parent hands on.
    config = node.params.get("config", kwargs.get("config", build.config))
    build = _Build(kwargs.get("mesh") or build.mesh, config, node, build.notes)
    with _building(build), _placed(node):
        children = {name: _construct(child, (), {}, build) for name, child in node.children.items()}
        args, given = _arguments(node, args, kwargs, children, build)
        return target(*args, **given)


def _arguments(
    node: PreparedSpec,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    children: dict[str, Any],
    build: _Build,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the constructor is called with."""
    parameters = constructor_parameters(node.module)
    given = {**node.params, **children}
    if node.submodules is not None and accepts(parameters, "submodules"):
        given["submodules"] = node.submodules
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters.values()):
        given.update(kwargs)
    else:
        names = [n for n, p in parameters.items() if p.kind is not Parameter.KEYWORD_ONLY]
        if "config" in kwargs and "config" in names:
            names.remove("config")
        positional = dict(zip(names, args, strict=False))
        _check_passed(node, len(args), len(names), frozenset(positional) & frozenset(kwargs))
        given.update(positional, **kwargs)
        args = ()
    for name, value in (("mesh", build.mesh), ("config", build.config)):
        if name in parameters and (name == "config" or name not in given) and value is not None:
            given[name] = value
    given = {n: v for n, v in given.items() if n not in OFFERED or accepts(parameters, n)}
    _check_given(node, parameters, frozenset(given))
    _note_overruled(node, given, build)
    return args, given


def _note_overruled(node: PreparedSpec, given: Mapping[str, Any], build: _Build) -> None:
    """A param that the parent passes too has no effect: said once for each node."""
    for name, value in node.params.items():
        if name in ("config", "layer_number") or name not in given or given[name] is value:
            continue
        if type(given[name]) is type(value) and given[name] == value:
            continue
        if any(n.path == node.path and f"`{name}`" in n.message for n in build.notes):
            continue
        build.notes.append(
            Diagnostic(
                "SP192",
                f"`{name}` in the params of `{node.module.__name__}` has no effect: its parent "
                "passes one, which wins",
                node.path,
                narrowed(node.span, f"`{name}`"),
                also=_asked(),
                help=f"leave `{name}` out of params, or set the config field that the parent reads",
            )
        )


def _check_passed(node: PreparedSpec, count: int, room: int, twice: frozenset[str]) -> None:
    if count <= room and not twice:
        return
    what = (
        f"is passed {', '.join(f'`{n}`' for n in sorted(twice))} twice"
        if twice
        else f"is passed {count} arguments in order and takes {room}"
    )
    raise SpecError(
        [
            Diagnostic(
                "SP128",
                f"`{node.module.__name__}` {what} by its parent",
                node.path,
                node.span,
                also=_asked(),
                help="its constructor has to take what the parent of this slot passes",
            )
        ]
    )


def _check_given(
    node: PreparedSpec, parameters: Mapping[str, Parameter], given: frozenset[str]
) -> None:
    name = node.module.__name__
    found = []
    for unknown in sorted(n for n in given if not accepts(parameters, n)):
        found.append(
            Diagnostic(
                "SP127",
                f"`{name}` has no parameter `{unknown}`, and its parent passes it",
                node.path,
                node.span,
                help=f"give its constructor a parameter `{unknown}`, or use another class here",
            )
        )
    for missing in missing_parameters(parameters, given):
        found.append(missing_diagnostic(node, missing))
    if found:
        asked = _asked()
        raise SpecError(dataclasses.replace(d, also=(*d.also, *asked)) for d in found)


def missing_parameters(parameters: Mapping[str, Parameter], given: frozenset[str]) -> list[str]:
    """The parameters without a default that nothing is given for."""
    plain = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [
        n
        for n, p in parameters.items()
        if p.default is Parameter.empty and p.kind in plain and n not in given
    ]


def missing_diagnostic(node: PreparedSpec, missing: str) -> Diagnostic:
    name, needed = node.module.__name__, parameter_span(node.module, missing)
    return Diagnostic(
        "SP119",
        f"`{name}` needs `{missing}`, and neither its spec nor its parent gives it",
        node.path,
        node.span,
        also=((needed, f"needed by `{name}`"),) if needed else (),
        help=f"add `{missing}` to params, or to submodules where it is a child",
    )


def _asked() -> tuple[tuple[Span, str], ...]:
    """The line of the parent's constructor that asks for the child, for a diagnostic's `also`."""
    span = asking_span(sys._getframe(1), __file__)
    return ((span, "asked for here"),) if span else ()


@contextlib.contextmanager
def _building(build: _Build) -> Iterator[None]:
    token = _BUILD.set(build)
    try:
        yield
    finally:
        _BUILD.reset(token)


@contextlib.contextmanager
def _placed(node: PreparedSpec) -> Iterator[None]:
    """Exceptions of a constructor tell where in the tree they were raised."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        where = f" ({node.span.file}:{node.span.line})" if node.span else ""
        place = node.path or "the root"
        error.add_note(f"while building `{node.module.__name__}` at {place}{where}")
        raise


__all__ = [
    "ModuleSpec",
    "Node",
    "PreparedSpec",
    "build_module",
    "construct",
    "get_submodules",
    "norm_slot",
    "required_slot",
]
