"""Construct: every child that the spec built becomes a plain constructor call in its parent.

A call is written with all arguments by name, the ones that stood by position marked, since which
parameters the child keeps is known only after pruning; `shape_call` gives it its final form.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import libcst as cst
from torch import dtype, nn

from specc.runtime import Mesh
from specc.templates import IdentityOp, ModuleSpec, build_module
from specc.templates.diagnostic import Span
from specc.templates.spec import OFFERED
from specc.templates.spec import is_config as is_template_config

from . import tree
from .errors import refuse, span_of_class
from .facts import Facts
from .flatten import Flat
from .kinds import Kind
from .pattern import by_table, looked_up, over_kinds, repeated, source_of
from .record import Built
from .shared_state import changes_a_list
from .value import Scope, Unknown, Value, evaluate, is_config, is_literal, is_spec, literal

if TYPE_CHECKING:
    from .expressions import ExpressionFolder

IDENTITY = "_Identity_"  # stands for a child that does nothing
POSITIONAL = "_by_position_"  # prefix of an argument's name that stood by position


class Constructor:
    """What the constructor of one kind builds, and which names its page form needs."""

    def __init__(
        self, facts: Facts, kind: Kind, flat: Flat, residuals: dict[Kind, list[str]]
    ) -> None:
        self.facts, self.kind, self.flat = facts, kind, flat
        self.parameters = residuals  # of each kind folded so far: its constructor's parameters
        self.gained: list[str] = []  # parameters that the author's constructor has not
        self.handed: dict[str, cst.BaseExpression] = {}  # children handed in, by parameter
        self.tables: dict[str, cst.Assign] = {}  # dicts that are given a name, by it
        self.of_classes: dict[int, cst.Assign] = {}  # what stands for one, by the dict's id
        self._at: tuple[cst.CSTNode, ExpressionFolder] | None = (
            None  # the expression that builds, for messages
        )
        init = flat.init_of(flat.cls)
        own = set() if init is None else {p.name.value for p in tree.every_parameter(init.node)}
        self.used = used = own if init is None else own | tree.stored_names(init.node.body)
        self.config_name = "config" if "config" not in used else "model_config"
        declared = any(isinstance(b.arguments.get("mesh"), Mesh) for b in kind.built)
        self.mesh_name = "mesh" if declared or "mesh" not in used else "parallel_mesh"
        self.declares_mesh = declared and "mesh" in own

    # ---------------------------------------------------------------- children built by call

    def build(self, node: cst.Call, folder: ExpressionFolder) -> cst.BaseExpression | None:
        """The plain call for one that built children of this kind's instances, else None."""
        builts = self.facts.built_at(node, self.kind)
        if not builts:
            self._refuse_unbuilt(node, folder)
            return None
        folder.note_built(node, (b.module for b in builts))
        if all(isinstance(b.module, IdentityOp) for b in builts):
            self.facts.decide(node, Value(IdentityOp), self.kind)
            stand_in = cst.Name(IDENTITY)
            self.facts.origins[id(stand_in)] = node
            return stand_in
        kinds = {self._kind_of(b) for b in builts}
        if len(kinds) > 1:
            names = ", ".join(sorted({f"`{b.cls.__name__}`" for b in builts}))
            refuse(
                "SP309",
                f"one call in `{self.kind.cls.__name__}` builds children that differ ({names}), "
                "and it is not a plain list "
                "comprehension",
                folder.span(node),
                help=(
                    "build them as `[build_module(spec, ...) for spec in specs]`, or with a call "
                    "for each"
                ),
            )
        return self._call(builts, node, folder)

    def _kind_of(self, built: Built) -> Kind | type:
        return self.facts.kinds.of(built.module) or built.cls

    def refuse_left(self, node: cst.Call, folder: ExpressionFolder) -> None:
        """A child built in text that is left as it is: a `match`, an inner function."""
        if _is_machinery(node, folder.scope):
            refuse(
                "SP325",
                f"`{self.kind.cls.__name__}` builds a child in a statement that is left as it is",
                folder.span(node),
                help="build it in a plain statement of `__init__`; decide it by `if`",
            )

    def _refuse_unbuilt(self, node: cst.Call, folder: ExpressionFolder) -> None:
        """A build that no instance reached, on a path that could not be folded."""
        if _is_machinery(node, folder.scope):
            refuse(
                "SP313",
                f"`{self.kind.cls.__name__}` builds a child under a condition that no instance "
                "met, and the condition "
                "can't be decided",
                folder.span(node),
                help="decide it by an option of the config (a boolean, a string, None)",
            )

    def _span(self) -> Span | None:
        """The line of the author's that is being folded."""
        if self._at is None:
            return span_of_class(self.kind.cls)
        return self._at[1].span(self._at[0])

    def _call(
        self, builts: list[Built], node: cst.Call, folder: ExpressionFolder
    ) -> cst.Call | None:
        """The plain call; None for an imported class called by its name, which stays as it is."""
        self._at = (node, folder)
        built = builts[0]
        kind = self.facts.kinds.of(built.module)
        machinery = _is_machinery(node, folder.scope)
        if kind is None and not machinery:
            return None
        args: list[cst.Arg] = []
        seen: set[str] = set()
        for name, arg in self._named(node, machinery, built, folder):
            seen.add(name)
            self._note_passed(name, arg, builts, folder)
            folded = folder.expression(arg.value)
            value = builts[0].arguments.get(name)
            if is_config(value):
                folded = self._same_config(folded, arg.value, value, folder.scope)
            args.append(cst.Arg(folded, keyword=arg.keyword or cst.Name(POSITIONAL + name)))
        self.facts.calls_folded |= {id(b.module) for b in builts}
        for name in inspect.signature(built.cls).parameters:
            if name in seen:
                continue
            expression = self._unsaid(name, builts)
            if expression is not None:
                args.append(cst.Arg(expression, keyword=cst.Name(name)))
        return self._make(built, kind, args)

    def _named(
        self, node: cst.Call, machinery: str | None, built: Built, folder: ExpressionFolder
    ) -> list[tuple[str, cst.Arg]]:
        """The arguments of a call that builds a child, each with the parameter that it is for."""
        explicit = list(node.args)
        if machinery == "function":
            spec = next(
                (a for a in explicit if a.keyword is not None and a.keyword.value == "spec"),
                explicit[0],
            )
            explicit.remove(spec)
        parameters = inspect.signature(built.cls).parameters
        plain = [
            n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        by_position = [n for n in plain if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
        if (
            machinery
            and explicit
            and explicit[0].keyword is None
            and self._goes_by_name(explicit[0], folder)
        ):
            by_position = ["config", *(n for n in by_position if n != "config")]
        found: list[tuple[str, cst.Arg]] = []
        for position, arg in enumerate(explicit):
            name = arg.keyword.value if arg.keyword is not None else ""
            if not arg.star and arg.keyword is None and position < len(by_position):
                name = by_position[position]
            offered = machinery is not None and name in OFFERED and name not in parameters
            if offered and tree.is_pure(arg.value):
                continue  # the child does without it
            if arg.star or name not in plain:
                what = (
                    f"with `{arg.star}` arguments"
                    if arg.star
                    else f"with `{tree.code(arg.value)}`, which has no name there"
                )
                refuse(
                    "SP311",
                    f"`{self.kind.cls.__name__}` builds `{built.cls.__name__}` {what}",
                    folder.span(node),
                    help=(
                        "pass each argument by its plain name, to a constructor that names its "
                        "parameters"
                    ),
                )
            found.append((name, arg))
        return found

    def _goes_by_name(self, arg: cst.Arg, folder: ExpressionFolder) -> bool:
        """Whether build_module hands this first argument on as `config=`, wherever that parameter
        stands.
        """
        known = folder.known(arg.value)
        return known is not None and is_template_config(known.object)

    def _note_passed(
        self, name: str, arg: cst.Arg, builts: list[Built], folder: ExpressionFolder
    ) -> None:
        """What is known here of an argument is what the child's constructor may know of its
        parameter.
        """
        known = folder.known(arg.value)
        for built in builts:
            value = built.arguments.get(name)
            settled = is_config(value) or isinstance(value, (nn.Module, Mesh))
            self.facts.passed[id(built.module), name] = (
                Value(value) if settled and known is None else known
            )
            if is_config(value):  # a node's own config wins over what its parent passes
                self.facts.passed[id(built.module), name] = Value(value)

    def _make(self, built: Built, kind: Kind | None, args: list[cst.Arg]) -> cst.Call:
        if kind is None:
            return self.facts.keep(cst.Call(imported(built.cls, self.facts), args))
        if "mesh" in built.arguments or self.parameters.get(kind) is not None:
            args = args + self._gained_by(
                kind, {a.keyword.value.removeprefix(POSITIONAL) for a in args if a.keyword}
            )
        call = cst.Call(cst.Name(kind.handle), args)
        self.facts.keep(call)
        return call

    def _gained_by(self, kind: Kind, seen: set[str]) -> list[cst.Arg]:
        """Arguments for the parameters that the child's page form gained."""
        args = []
        for name in self.parameters.get(kind, []):
            if name in seen:
                continue
            expression = (
                self._mesh()
                if name in ("mesh", "parallel_mesh")
                else self._config(self.facts.kinds.configs[0])
            )
            args.append(cst.Arg(expression, keyword=cst.Name(name)))
        return args

    def _unsaid(self, name: str, builts: list[Built]) -> cst.BaseExpression | None:
        """An argument that the spec passed, not the parent's text."""
        if all(name not in b.given for b in builts):
            return None
        values = [b.arguments[name] for b in builts]
        if name == "submodules" or is_spec(values[0]) or _holds_spec(values[0]):
            return None
        if isinstance(values[0], Mesh):
            return self._mesh()
        if isinstance(values[0], nn.Module):
            return self._construct(values, name)
        if is_config(values[0]):
            return self._config(values[0])
        other = next(
            (b for b, v in zip(builts, values, strict=True) if _differ(v, values[0])), None
        )
        if other is not None:
            refuse(
                "SP312",
                f"the specs of the layers built at one place in `{self.kind.cls.__name__}` give "
                "different values for "
                f"`{name}` of `{builts[0].cls.__name__}`: {values[0]!r} and "
                f"{other.arguments[name]!r}",
                other.span or self._span(),
                help=(
                    "let the parent compute it from the layer's number, or give the layers "
                    "classes of their own"
                ),
            )
        self._refuse_changed_list(values[0], name, builts[0])
        return written(values[0], name, builts[0], self.facts)

    def _refuse_changed_list(self, value: Any, name: str, built: Built) -> None:
        """A list in the spec is one list for all that the spec builds; on the page each gets its
        own.
        """
        kind = self.facts.kinds.of(built.module) if isinstance(value, list) else None
        node = None if kind is None else changes_a_list(self.facts.flat(kind))
        if kind is not None and node is not None:
            refuse(
                "SP329",
                f"`{name}` of `{built.cls.__name__}` is a list in its spec, and the class may "
                "change it",
                self.facts.sources.span(node, *self.facts.flat(kind).chain),
                help="give a tuple, and make the list in the constructor",
            )

    # ---------------------------------------------------------------- children handed in

    def injected(self, node: cst.Name, folder: ExpressionFolder) -> cst.BaseExpression | None:
        """The constructor call of a child that the spec handed in as the parameter of this name."""
        known = folder.scope.names.get(node.value)
        if known is None or not isinstance(known.object, nn.Module):
            return None
        holder = self.facts.kinds.holder(known.object)
        if holder is None or holder[0].module not in self.kind.instances or holder[1] != node.value:
            return None
        modules = [b.arguments[node.value] for b in self.kind.built]
        self._at = (node, folder)
        folder.note_built(node, modules)
        if node.value not in self.handed:
            self.handed[node.value] = self._construct(modules, node.value)
        return self.handed[node.value]

    def _construct(self, modules: list[Any], name: str) -> cst.BaseExpression:
        """The call that makes a child which the spec handed in, to each instance its own."""
        first = modules[0]
        if all(isinstance(m, IdentityOp) for m in modules):
            return cst.Name(IDENTITY)
        builts = [self.facts.recording.of(m) for m in modules]
        made = [b for b in builts if b is not None]
        if len(made) < len(modules):
            holder = self.facts.kinds.holder(made[0].module) if made else None
            taker = self.kind.cls if holder is None else holder[0].cls
            refuse(
                "SP314",
                f"`{name}` of `{taker.__name__}` is an instance of "
                f"`{type(first).__name__}`, made before the build",
                self._span(),
                help=f"give it as ModuleSpec({type(first).__name__}, params={{...}})",
            )
        args = []
        for parameter in inspect.signature(made[0].cls).parameters:
            expression = self._unsaid(parameter, made)
            if expression is not None:
                positional = parameter in ("config", "mesh")
                args.append(
                    cst.Arg(
                        expression, keyword=cst.Name((POSITIONAL if positional else "") + parameter)
                    )
                )
        return self._make(made[0], self.facts.kinds.of(first), args)

    # ---------------------------------------------------------------- a list of children that
    # differ

    def pattern(self, node: Any, folder: ExpressionFolder) -> cst.BaseExpression | None:
        """`[kind(config) for kind in [A] * 3 + [B] * 5]` for a comprehension over specs, or one
        whose children differ; None for any other."""
        if not isinstance(node, cst.ListComp) or not isinstance(node.elt, cst.Call):
            return None
        if node.for_in.ifs or node.for_in.inner_for_in:
            return None
        builts = self._alike(self.facts.built_at(node.elt, self.kind))
        if not builts:
            return None
        kinds = [self._kind_of(b) for b in builts]
        handle = f"_Pattern{len(self.facts.patterns)}_"
        by_symbol = self._by_symbol(node, node.elt, builts, handle, folder)
        if by_symbol is not None:
            return by_symbol
        specs = _spec_variable(node.elt)
        if over_kinds(node.for_in, specs, handle, cst.List([])) is None and len(set(kinds)) < 2:
            return None
        before = folder.scope
        folder.scope = before.copy()
        folder.scope.forget(tree.stored_names(node))
        calls = self._calls(node.elt, builts, folder)
        table = repeated([calls[k].func for k in kinds])
        loop = over_kinds(node.for_in, specs, handle, table)
        if loop is None:  # the specs come from elsewhere: zipped with what the call still reads
            zipped = cst.Call(
                cst.Name("zip"), [cst.Arg(table), cst.Arg(folder.expression(node.for_in.iter))]
            )
            pair = [cst.Element(cst.Name(handle)), cst.Element(node.for_in.target)]
            loop = node.for_in.with_changes(target=cst.Tuple(pair, lpar=[], rpar=[]), iter=zipped)
        elif isinstance(loop.iter, cst.Call):  # enumerate: its start may be folded too
            args = [loop.iter.args[0], *(folder.expression(a) for a in loop.iter.args[1:])]
            loop = loop.with_changes(iter=loop.iter.with_changes(args=args))
        folder.scope = before
        self.facts.patterns[handle] = list(calls)
        self.facts.pattern_names[handle] = "kind" if "kind" not in self.used else "child_kind"
        call = cst.Call(cst.Name(handle), self._arguments_of_all(calls))
        self.facts.keep(call)
        return node.with_changes(elt=call, for_in=loop)

    def _calls(
        self, node: cst.Call, builts: list[Built], folder: ExpressionFolder
    ) -> dict[Kind | type, cst.Call]:
        """The plain call for each kind of child that one call of a list built."""
        kinds = [self._kind_of(b) for b in builts]
        calls: dict[Kind | type, cst.Call] = {}
        for kind in dict.fromkeys(kinds):
            group = [b for b, k in zip(builts, kinds, strict=True) if k is kind]
            if any(isinstance(b.module, IdentityOp) for b in group):
                refuse(
                    "SP309",
                    f"a list of `{self.kind.cls.__name__}` holds identity operations",
                    self._span(),
                    help="leave them out of the list",
                )
            call = self._call(group, node, folder)
            calls[kind] = call if call is not None else node
        return calls

    # ---------------------------------------------------------------- a list by symbols

    def note_table(self, node: cst.Assign) -> None:
        """A dict is given a name: its values may be specs that a list takes its children from."""
        target = node.targets[0].target
        if len(node.targets) == 1 and isinstance(target, cst.Name):
            self.tables[target.value] = node

    def with_tables(self, body: list[Any]) -> list[Any]:
        """Statements with the dicts of specs that were looked into as dicts of classes."""
        if not self.of_classes:
            return body

        def swap(node: cst.CSTNode) -> cst.CSTNode | None:
            found = self.of_classes.get(id(node.value)) if isinstance(node, cst.Assign) else None
            return found

        return [tree.replace(s, swap) for s in body]

    def _by_symbol(
        self,
        node: cst.ListComp,
        call: cst.Call,
        builts: list[Built],
        handle: str,
        folder: ExpressionFolder,
    ) -> cst.ListComp | None:
        """`[kinds[symbol](config) for symbol in config.pattern]` for a list whose specs are looked
        up by the symbols of a config's string; None for any other, or where a symbol stands for
        several kinds.
        """
        names = looked_up(_spec_of(call))
        source = source_of(node.for_in, names[1]) if names is not None else None
        if names is None or source is None or names[0] not in self.tables:
            return None
        symbols = folder.known(source)
        if symbols is None or not isinstance(symbols.object, str) or not symbols.fields:
            return None
        if len(symbols.object) != len(builts):
            return None
        of_symbol: dict[str, Kind | type] = {}
        for symbol, built in zip(symbols.object, builts, strict=True):
            if of_symbol.setdefault(symbol, self._kind_of(built)) is not self._kind_of(built):
                return None
        before = folder.scope
        folder.scope = before.copy()
        folder.scope.forget(tree.stored_names(node))
        calls = self._calls(call, builts, folder)
        folder.scope = before
        assign = self.tables[names[0]]
        order = {tree.code(e.key).strip("\"'"): None for e in assign.value.elements}  # type: ignore
        classes = {s: calls[of_symbol[s]].func for s in order if s in of_symbol}
        table, looked = by_table(handle, names[1], classes)
        target = assign.targets[0].with_changes(target=cst.Name(handle))
        self.of_classes[id(assign.value)] = assign.with_changes(value=table, targets=[target])
        self.facts.patterns[handle] = list(calls)
        self.facts.pattern_names[handle] = names[0]
        made = cst.Call(looked, self._arguments_of_all(calls))
        self.facts.keep(made)
        kept = folder.as_it_stands(source)  # the page goes by the config's string, whatever it is
        loop = tree.replace(node.for_in, lambda item: kept if item is source else None)
        return node.with_changes(elt=made, for_in=loop)

    def _alike(self, builts: list[Built]) -> list[Built]:
        """What one instance built, where every instance built the same kinds in the same order."""
        by_owner: dict[int, list[Built]] = {}
        for built in builts:
            by_owner.setdefault(id(built.owner), []).append(built)
        rows = list(by_owner.values())
        same = all(
            [self._kind_of(b) for b in r] == [self._kind_of(b) for b in rows[0]] for r in rows
        )
        return rows[0] if rows and same else []

    def _arguments_of_all(self, calls: dict[Kind | type, cst.Call]) -> list[cst.Arg]:
        """The arguments of the one call that stands for these, each by its name."""
        takers: dict[Kind | type, set[str]] = {}
        found: dict[str, cst.Arg] = {}
        for kind, call in calls.items():
            cls = kind if isinstance(kind, type) else kind.cls
            gained = [] if isinstance(kind, type) else self.parameters.get(kind, [])
            takers[kind] = {*inspect.signature(cls).parameters, *gained}
            for arg in call.args:
                assert arg.keyword is not None
                name = arg.keyword.value.removeprefix(POSITIONAL)
                if name not in takers[kind]:
                    continue  # offered by the parent, and this class does without it
                if name in found and tree.code(found[name].value) != tree.code(arg.value):
                    refuse(
                        "SP312",
                        f"the layers built at one place in `{self.kind.cls.__name__}` are given "
                        "different arguments "
                        f"by their specs: `{name}` is `{tree.code(found[name].value)}` and "
                        f"`{tree.code(arg.value)}`",
                        self._span(),
                        help="give all layers the same arguments, or classes of their own",
                    )
                found.setdefault(name, arg)
        for kind in calls:
            if isinstance(kind, type) and (missing := sorted(found.keys() - takers[kind])):
                refuse(
                    "SP312",
                    f"the layers built at one place in `{self.kind.cls.__name__}` take different "
                    "arguments: "
                    f"`{kind.__name__}` has no parameter `{missing[0]}`",
                    self._span(),
                    help="wrap it in a class of your own that takes what the others take",
                )
        return list(found.values())

    # ---------------------------------------------------------------- config and mesh

    def _mesh(self) -> cst.Name:
        if not self.declares_mesh and self.mesh_name not in self.gained:
            self.gained.append(self.mesh_name)
            self.facts.imports["Mesh"] = Mesh  # for the annotation
        return cst.Name(self.mesh_name)

    def _config(self, value: Any) -> cst.BaseExpression:
        """An expression for this config in the scope of the constructor."""
        index = self.facts.kinds.config_index(value)
        for name, own in self.kind.built[0].arguments.items():
            if is_config(own) and self.facts.kinds.config_index(own) == index:
                return cst.Name(name)
        if index == 0:
            if self.config_name not in self.gained:
                self.gained.insert(0, self.config_name)
            return cst.Name(self.config_name)
        return cst.Call(cst.Name(config_handle(index)))

    def _same_config(
        self, folded: cst.BaseExpression, said: cst.BaseExpression, value: Any, scope: Scope
    ) -> cst.BaseExpression:
        """The parent's own expression where it is this config; a node may set its own."""
        try:
            known = evaluate(said, scope).object
        except Unknown:
            known = None
        if is_config(known) and self.facts.kinds.config_index(
            known
        ) == self.facts.kinds.config_index(value):
            return folded
        return self._config(value)

    def builds_inside(self, node: cst.CSTNode) -> bool:
        for item in tree.walk(node):
            if isinstance(item, cst.Call):
                if self.facts.built_at(item, self.kind):
                    return True
                if isinstance(item.func, cst.Name) and item.func.value == "build_module":
                    return True
        return False


def config_handle(index: int) -> str:
    """Stands for the name of the page's config class number `index` (0 is `Config`)."""
    return f"_Config{index}_"


def _is_machinery(node: cst.Call, scope: Scope) -> str | None:
    """Whether a call goes through the spec: "function" for build_module(spec, ...), "method" for
    spec.build_module(...).
    """
    if isinstance(node.func, cst.Attribute) and node.func.attr.value == "build_module":
        return "method"
    try:
        callee = evaluate(node.func, scope).object
    except Unknown:
        return None
    if callee is build_module:
        return "function"
    if isinstance(callee, ModuleSpec):
        return "method"
    return None


def _spec_of(call: cst.Call) -> cst.BaseExpression | None:
    """`spec` in `build_module(spec, ...)` and in `spec.build_module(...)`."""
    if isinstance(call.func, cst.Attribute):
        return call.func.value
    return call.args[0].value if call.args and call.args[0].keyword is None else None


def _spec_variable(call: cst.Call) -> str | None:
    """Its name, where it is one."""
    node = _spec_of(call)
    return node.value if isinstance(node, cst.Name) else None


def _holds_spec(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(is_spec(v) or _holds_spec(v) for v in value)
    if isinstance(value, dict):
        return any(is_spec(v) or _holds_spec(v) for v in value.values())
    return False


def imported(cls: Any, facts: Facts) -> cst.BaseExpression:
    """The name by which the page imports a class or function that it does not hold."""
    if getattr(cls, "__module__", "").startswith("torch.nn.modules"):
        facts.imports["nn"] = nn
        return cst.Attribute(cst.Name("nn"), cst.Name(cls.__name__))
    facts.imports[cls.__name__] = cls
    return cst.Name(cls.__name__)


def _differ(one: Any, other: Any) -> bool:
    return one is not other and (type(one) is not type(other) or (one == other) is not True)


def written(value: Any, name: str, built: Built, facts: Facts) -> cst.BaseExpression:
    """A value from a spec's params as source. Refuses what has none."""
    if is_literal(value) or (isinstance(value, list) and all(is_literal(v) for v in value)):
        return literal(value)
    if isinstance(value, dtype):
        facts.imports["torch"] = __import__("torch")
        return cst.parse_expression(str(value))
    qualified = getattr(value, "__qualname__", None)
    if qualified is not None and qualified.isidentifier() and hasattr(value, "__module__"):
        return imported(value, facts)
    refuse(
        "SP315",
        f"`{name}` of `{built.cls.__name__}` is {value!r}, which can't be written on a page",
        built.span or span_of_class(built.cls),
        help=(
            "use a number, a string, a tuple of those, a frozen config, or a function or class "
            "with a name of its own"
        ),
    )
