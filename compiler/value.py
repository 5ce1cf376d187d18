"""Value: what is known of an expression before the model runs.

An expression is known when its answer is the same whenever the page runs: it reads the frozen
config, the arguments that every instance of a class was built with, attributes that are set
once, literals and a few pure builtins. Anything else is `Unknown`, and its text stays.

A known answer has a grade. A DECISION reads options, booleans and `None`. A SWITCH also asks
whether a number is zero, which is how a config says "off". NUMBER reads a number as a number:
such an answer changes when the page is scaled, so the text is kept.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import CodeType, FunctionType, ModuleType
from typing import Any

import libcst as cst
from torch import nn

from . import tree


class Grade(IntEnum):
    DECISION = 0
    SWITCH = 1
    NUMBER = 2


class Unknown(Exception):
    """The expression's value is not known before the page runs."""


class _NotNone:
    """Stands for a value of which only this is known: it is not None."""

    def __repr__(self) -> str:
        return "NOT_NONE"


NOT_NONE = _NotNone()


Fields = frozenset[tuple[int, str]]
"""Fields that are read, each with the id of its config."""


@dataclass(frozen=True)
class Value:
    object: Any
    grade: Grade = Grade.DECISION
    fields: Fields = frozenset()  # config fields that the answer reads


def graded(thing: Any, fields: Fields = frozenset()) -> Value:
    number = isinstance(thing, (int, float)) and not isinstance(thing, bool)
    return Value(thing, Grade.NUMBER if number else Grade.DECISION, fields)


def is_config(thing: Any) -> bool:
    """A frozen dataclass instance: the only kind of config that may be folded."""
    params = getattr(thing, "__dataclass_params__", None)
    if params is None or isinstance(thing, type) or not params.frozen:
        return False
    # The mesh is frozen too, and is never folded: parallel degrees are chosen at launch.
    return not type(thing).__module__.startswith("specc.runtime") and not is_spec(thing)


def common(values: Sequence[Any]) -> Any:
    """The one value that all of these are, for folding; raises Unknown where they differ.

    Mutable values are never known. Modules agree when their classes do: nothing but their class
    and their presence is asked of them.
    """
    first = values[0]
    alike = all(type(v) is type(first) for v in values)
    if isinstance(first, nn.Module):
        known = alike
    elif first is None or isinstance(first, (type, ModuleType)) or callable(first):
        known = all(v is first for v in values)
    elif isinstance(first, tuple):
        known = alike and all(len(v) == len(first) for v in values)
        known = known and all(_immutable(common(part)) for part in zip(*values, strict=True))
    else:
        known = _immutable(first) or is_config(first) or is_spec(first)
        known = known and alike and all(v is first or v == first for v in values)
    if not known:
        raise Unknown
    return first


def _immutable(thing: Any) -> bool:
    return thing is None or isinstance(thing, (bool, int, float, complex, str, bytes, Enum, tuple))


def is_spec(thing: Any) -> bool:
    """Part of a spec: it may be asked about, and must be gone from the page."""
    from specc.templates import ModuleSpec

    # Megatron's convention, which its walkers go by too: the children of X are an XSubmodules.
    return isinstance(thing, ModuleSpec) or type(thing).__name__.endswith("Submodules")


class SeveralSubmodules:
    """The children that several specs name for one class: what is asked of them is known where all
    of them answer alike, or where none answers None."""

    def __init__(self, alike: Sequence[Any]) -> None:
        self.alike = alike

    def child(self, name: str) -> Value:
        return self._shared([getattr(each, name) for each in self.alike])

    def item(self, name: str) -> Value:
        return self._shared([each[name] for each in self.alike])

    def _shared(self, values: list[Any]) -> Value:
        if any(v is not values[0] for v in values):
            if any(v is None for v in values):
                raise Unknown
            return Value(NOT_NONE)
        return Value(values[0])


@dataclass
class Scope:
    """The names that an expression may read."""

    globals: Mapping[str, Any]
    names: dict[str, Value | None] = field(default_factory=dict)  # None: bound, value not known
    attributes: Callable[[str], Value] | None = None  # of `self`; raises Unknown
    self_name: str = "self"

    def copy(self) -> Scope:
        return dataclasses.replace(self, names=dict(self.names))

    def forget(self, names: set[str]) -> None:
        for name in names:
            self.names[name] = None


_COMPARE: dict[type[cst.BaseCompOp], Callable[[Any, Any], Any]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.Is: operator.is_,
    cst.IsNot: operator.is_not,
    cst.In: lambda a, b: a in b,
    cst.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC: dict[type[cst.BaseBinaryOp], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod,
    cst.Power: operator.pow,
}
_PURE: dict[Any, None] = dict.fromkeys(
    (isinstance, issubclass, len, min, max, int, float, bool, abs, round, getattr, hasattr)
)


def evaluate(node: cst.BaseExpression, scope: Scope) -> Value:
    """The value of an expression; raises Unknown."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise Unknown
    try:
        value = handler(node, scope)
    except Unknown:
        raise
    except Exception as error:  # a test that raises when it is evaluated stays as it is
        raise Unknown from error
    return value


def truth(node: cst.BaseExpression, scope: Scope) -> Value:
    """The truth of an expression used as a test; raises Unknown. Asking a number makes a SWITCH."""
    value = evaluate(node, scope)
    if value.object is NOT_NONE or isinstance(value.object, nn.Module):
        raise Unknown
    bare_number = isinstance(value.object, (int, float)) and not isinstance(value.object, bool)
    grade = (
        Grade.SWITCH if bare_number and isinstance(node, (cst.Name, cst.Attribute)) else value.grade
    )
    return Value(bool(value.object), grade, value.fields)


def _name(node: cst.Name, scope: Scope) -> Value:
    if node.value in scope.names:
        known = scope.names[node.value]
        if known is None:
            raise Unknown
        return known
    if node.value in scope.globals:
        thing = scope.globals[node.value]
        # Module-level flags may depend on the machine; only classes, functions and modules are
        # facts.
        if isinstance(thing, (type, ModuleType)) or callable(thing):
            return Value(thing)
        raise Unknown
    builtin = {"None": None, "True": True, "False": False}
    if node.value in builtin:
        return Value(builtin[node.value])
    if hasattr(builtins, node.value):
        return Value(getattr(builtins, node.value))
    raise Unknown


def attribute_of(thing: Any, name: str, fields: Fields = frozenset()) -> Value:
    """`thing.name`, where reading it is known to run no code of its own."""
    if is_config(thing):
        return config_read(thing, name)
    if isinstance(thing, ModuleType):
        value = getattr(thing, name)
        if isinstance(value, (type, ModuleType)) or callable(value):
            return Value(value, fields=fields)
        raise Unknown
    if isinstance(thing, SeveralSubmodules):
        return thing.child(name)
    if is_spec(thing):
        return Value(getattr(thing, name), fields=fields)
    if isinstance(thing, type) and issubclass(thing, Enum):
        return Value(thing[name], fields=fields)
    raise Unknown


def config_read(config: Any, name: str) -> Value:
    """A field or a property of a config, with every field that it reads on the path it takes."""
    names = {f.name for f in dataclasses.fields(config)}
    if name in names:
        return graded(getattr(config, name), frozenset({(id(config), name)}))
    static = inspect.getattr_static(type(config), name, None)
    if (
        not isinstance(static, property)
        or static.fget is None
        or not _asks_the_config_alone(static.fget)
    ):
        raise Unknown
    reads: set[str] = set()
    result = static.fget(_Traced(config, reads))
    fields = frozenset((id(config), read) for read in reads)
    numeric = any(graded(getattr(config, read)).grade is Grade.NUMBER for read in reads)
    grade = Grade.NUMBER if numeric and result is not None else graded(result).grade
    return Value(result, grade, fields)


def is_field_or_property(config: Any, name: str) -> bool:
    """Whether `config.name` is something that the page's Config can have."""
    static = inspect.getattr_static(type(config), name, None)
    return isinstance(static, property) or name in {f.name for f in dataclasses.fields(config)}


@functools.cache
def _asks_the_config_alone(function: Any) -> bool:
    """Whether a property's answer depends on nothing but its config: it uses no name of its module
    except classes, the math module and functions of which the same holds."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    for name in _global_names(code, function.__globals__):
        thing = function.__globals__.get(name, getattr(builtins, name, None))
        if isinstance(thing, type) or thing in (math, *_PURE) or thing is None:
            continue
        if isinstance(thing, FunctionType) and (thing is function or _asks_the_config_alone(thing)):
            continue
        return False
    return True


def _global_names(code: CodeType, module: Mapping[str, Any]) -> set[str]:
    """The globals that a function reads; attributes and locals are others."""
    names: set[str] = set()
    # `co_names` has the attributes too; telling them apart takes long, and most code has no global.
    if any(n in module or hasattr(builtins, n) for n in code.co_names):
        loads = ("LOAD_GLOBAL", "LOAD_NAME")
        names = {i.argval for i in dis.get_instructions(code) if i.opname in loads}
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return names | {n for c in inner for n in _global_names(c, module)}


class _Traced:
    """A config that writes down which of its fields are read, its own properties followed."""

    def __init__(self, config: Any, reads: set[str]) -> None:
        self._config, self._reads = config, reads

    def __getattr__(self, name: str) -> Any:
        static = inspect.getattr_static(type(self._config), name, None)
        if isinstance(static, property) and static.fget is not None:
            return static.fget(self)
        if name in {f.name for f in dataclasses.fields(self._config)}:
            self._reads.add(name)
        return getattr(self._config, name)


def _attribute(node: cst.Attribute, scope: Scope) -> Value:
    own = isinstance(node.value, cst.Name) and node.value.value == scope.self_name
    if own and scope.attributes is not None:
        key = f"{scope.self_name}.{node.attr.value}"
        if key in scope.names:
            known = scope.names[key]
            if known is None:
                raise Unknown
            return known
        return scope.attributes(node.attr.value)
    base = evaluate(node.value, scope)
    return attribute_of(base.object, node.attr.value, base.fields)


def _comparison(node: cst.Comparison, scope: Scope) -> Value:
    left = evaluate(node.left, scope)
    grade, fields, answer = left.grade, left.fields, True
    for target in node.comparisons:
        right = evaluate(target.comparator, scope)
        fields |= right.fields
        if isinstance(target.operator, (cst.Is, cst.IsNot)):
            if right.object is not None and NOT_NONE in (left.object, right.object):
                raise Unknown
            if not (_is_one_of_a_kind(left.object) or _is_one_of_a_kind(right.object)):
                raise Unknown  # equal strings and numbers may or may not be one object
            grade = Grade.DECISION if len(node.comparisons) == 1 else max(grade, right.grade)
        else:
            if isinstance(left.object, nn.Module) or NOT_NONE in (left.object, right.object):
                raise Unknown
            zero = type(right.object) in (int, float) and right.object == 0 and not right.fields
            bare = isinstance(node.left, (cst.Name, cst.Attribute)) and len(node.comparisons) == 1
            switch = bare and zero and left.grade is Grade.NUMBER
            grade = Grade.SWITCH if switch else max(grade, right.grade)
        if not _COMPARE[type(target.operator)](left.object, right.object):
            answer = False
        left = right
    return Value(answer, grade, fields)


def _is_one_of_a_kind(thing: Any) -> bool:
    """Whether `is` asks the same as `==`: None, a boolean, a class, a function, a member of an
    enum.
    """
    return thing is None or isinstance(thing, (bool, type, Enum, ModuleType)) or callable(thing)


def _boolean(node: cst.BooleanOperation, scope: Scope) -> Value:
    left = truth(node.left, scope)
    wants_left = left.object if isinstance(node.operator, cst.Or) else not left.object
    if wants_left:
        value = evaluate(node.left, scope)
        own = Grade.DECISION if value.object in (True, False) else value.grade
        return Value(value.object, max(left.grade, own), left.fields)
    right = evaluate(node.right, scope)
    return Value(right.object, max(left.grade, right.grade), left.fields | right.fields)


def _unary(node: cst.UnaryOperation, scope: Scope) -> Value:
    if isinstance(node.operator, cst.Not):
        value = truth(node.expression, scope)
        return Value(not value.object, value.grade, value.fields)
    value = evaluate(node.expression, scope)
    if isinstance(node.operator, cst.Minus):
        return Value(-value.object, value.grade, value.fields)
    raise Unknown


def _binary(node: cst.BinaryOperation, scope: Scope) -> Value:
    left, right = evaluate(node.left, scope), evaluate(node.right, scope)
    operate = _ARITHMETIC.get(type(node.operator))
    if operate is None or not all(
        isinstance(v.object, (int, float, str, tuple)) for v in (left, right)
    ):
        raise Unknown
    return Value(
        operate(left.object, right.object), max(left.grade, right.grade), left.fields | right.fields
    )


def _conditional(node: cst.IfExp, scope: Scope) -> Value:
    test = truth(node.test, scope)
    value = evaluate(node.body if test.object else node.orelse, scope)
    return Value(value.object, max(test.grade, value.grade), test.fields | value.fields)


def _call(node: cst.Call, scope: Scope) -> Value:
    function = evaluate(node.func, scope).object
    if (
        isinstance(function, nn.Module)
        or function not in _PURE
        or any(a.star or a.keyword for a in node.args)
    ):
        raise Unknown
    values = [evaluate(a.value, scope) for a in node.args]
    objects = [v.object for v in values]
    fields = frozenset().union(*(v.fields for v in values))
    if NOT_NONE in objects:
        raise Unknown
    if function in (getattr, hasattr):
        if not is_config(objects[0]) and not is_spec(objects[0]):
            raise Unknown
        has = hasattr(objects[0], objects[1])
        if function is hasattr:
            return Value(has)
        return attribute_of(objects[0], objects[1]) if has else values[2]
    if function in (isinstance, issubclass):
        return Value(function(*objects), Grade.DECISION, fields)
    if any(isinstance(o, nn.Module) for o in objects):
        raise Unknown
    return graded(function(*objects), fields)


def _tuple(node: cst.Tuple, scope: Scope) -> Value:
    if any(not isinstance(e, cst.Element) for e in node.elements):
        raise Unknown
    values = [evaluate(e.value, scope) for e in node.elements]
    grade = max((v.grade for v in values), default=Grade.DECISION)
    return Value(
        tuple(v.object for v in values), grade, frozenset().union(*(v.fields for v in values))
    )


def _subscript(node: cst.Subscript, scope: Scope) -> Value:
    base = evaluate(node.value, scope)
    if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        raise Unknown
    index = evaluate(node.slice[0].slice.value, scope)
    if isinstance(base.object, dict) and isinstance(index.object, str):  # the children of a spec
        return Value(base.object[index.object])
    if isinstance(base.object, SeveralSubmodules):
        return base.object.item(index.object)
    if not isinstance(base.object, tuple):
        raise Unknown
    value = graded(base.object[index.object])
    return Value(
        value.object, max(value.grade, base.grade, index.grade), base.fields | index.fields
    )


def _literal(node: cst.Integer | cst.Float, scope: Scope) -> Value:
    return Value(node.evaluated_value, Grade.NUMBER)


_HANDLERS: dict[type[cst.BaseExpression], Callable[[Any, Scope], Value]] = {
    cst.Name: _name,
    cst.Attribute: _attribute,
    cst.Comparison: _comparison,
    cst.BooleanOperation: _boolean,
    cst.UnaryOperation: _unary,
    cst.BinaryOperation: _binary,
    cst.IfExp: _conditional,
    cst.Call: _call,
    cst.Tuple: _tuple,
    cst.Subscript: _subscript,
    cst.Integer: _literal,
    cst.Float: _literal,
    cst.SimpleString: lambda node, scope: Value(node.evaluated_value),
}


def is_literal(thing: Any) -> bool:
    """Whether `literal` can write it: an enum's member that is a string too is none here."""
    if isinstance(thing, tuple):
        return type(thing) is tuple and all(is_literal(part) for part in thing)
    return thing is None or type(thing) in (bool, int, float, str)


def literal(thing: Any) -> cst.BaseExpression:
    """The source of None, a boolean, a number, a string or a tuple of those."""
    if isinstance(thing, str):
        return cst.SimpleString(_quoted(thing))
    if isinstance(thing, float):
        return cst.parse_expression(float_text(thing))
    if isinstance(thing, (tuple, list)):
        inner = ", ".join(cst.Module([]).code_for_node(literal(part)) for part in thing)
        comma = "," if isinstance(thing, tuple) and len(thing) == 1 else ""
        return cst.parse_expression(
            f"({inner}{comma})" if isinstance(thing, tuple) else f"[{inner}]"
        )
    return cst.parse_expression(repr(thing))


def _quoted(text: str) -> str:
    """A string in double quotes, with the escapes of `repr`."""
    shown = repr(text)
    if shown[0] == '"':
        return shown
    inner = shown[1:-1].replace("\\'", "'").replace('"', '\\"')
    return f'"{inner}"'


def float_text(number: float) -> str:
    """A float as a person writes it: 1e-5, not 1e-05."""
    if number != number or number in (float("inf"), float("-inf")):
        return f'float("{number}")'
    text = repr(number)
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def reads_only_config(node: cst.CSTNode, scope: Scope) -> bool:
    """Whether every number that the answer depends on is a field of the config or a literal."""
    if isinstance(node, cst.Attribute):
        try:
            if is_config(evaluate(node.value, scope).object):
                return True
        except Unknown:
            pass
    if isinstance(node, cst.Name):
        if node.value not in scope.names:
            return True
        known = scope.names[node.value]
        return known is not None and known.grade is Grade.DECISION
    if isinstance(node, cst.BooleanOperation):
        try:
            evaluate(node.right, scope)
        except Unknown:  # the answer is the left side's
            return reads_only_config(node.left, scope)
    return all(reads_only_config(part, scope) for part in tree.parts(node))
