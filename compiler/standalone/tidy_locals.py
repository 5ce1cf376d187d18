"""Locals: a name bound once to what is as short as a name, or to a record, is what it stands for.

In the runtime's functions, and in the page's where folding wrote the binding.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import libcst as cst

from .. import tree
from ..inline import in_evaluation_order
from .program import Program
from .purity import is_harmless, is_literal, is_path, is_pure, is_record_of_pure
from .substitute import renamed_everywhere, substituted


SHORT_VALUE = 40  # columns of a value that the next line may hold as well
LONG_TEST = 60  # and of a test that is read where it is asked


def tidy_locals(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    """The function with such names replaced, and without bindings that nothing reads."""
    tidy = program.memory.setdefault("tidy", {})
    if tidy.get(id(function), (None, None)) == (function, records):
        return function
    new = _tidied(function, program, records, ours)
    if new is function:
        tidy[id(function)] = (function, records)
    return new


def _tidied(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    function = _literals_on(function)
    function = _split_tuples(function, program, ours)
    function = _spread_records(function, program, records)
    mapping, gone = _aliases(function, program, records, ours)
    if mapping:
        body = [
            substituted(s, mapping) for s in _without(tree.body_of(function), gone)
        ]
        function = tree.with_body(function, body)
    function = _drop_unread(function, program, records, ours)
    return _join_adjacent(function, program, ours)


@functools.lru_cache(maxsize=1 << 12)
def _stores(function: cst.FunctionDef) -> Counter[str]:
    """How often each name is bound, parameters included."""
    found: Counter[str] = Counter(p.name.value for p in tree.every_parameter(function))
    for item in tree.walk(function.body):
        if type(item) not in _STORING:
            continue
        if isinstance(item, (cst.FunctionDef, cst.Lambda)):
            found.update(p.name.value for p in tree.every_parameter(item))
            if isinstance(item, cst.FunctionDef):
                found[item.name.value] += 2
        if isinstance(item, (cst.AugAssign, cst.For, cst.CompFor, cst.Del, cst.AsName)):
            found.update({n: 2 for n in tree.bound_names(item)})
        elif isinstance(item, (cst.Assign, cst.AnnAssign, cst.NamedExpr)):
            found.update(tree.bound_names(item))
    return found


_STORING = frozenset(
    {cst.FunctionDef, cst.Lambda, cst.AugAssign, cst.For, cst.CompFor, cst.Del, cst.AsName,
     cst.Assign, cst.AnnAssign, cst.NamedExpr}
)  # fmt: skip


def _bindings(statements: Iterable[Any]) -> Iterable[tuple[Any, str, cst.BaseExpression]]:
    """`name = value` lines, at any depth that is no loop."""
    for statement in statements:
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            small = statement.body[0]
            if isinstance(small, cst.Assign) and len(small.targets) == 1:
                target, value = small.targets[0].target, small.value
            elif isinstance(small, cst.AnnAssign) and small.value is not None:
                target, value = small.target, small.value
            else:
                continue
            if isinstance(target, cst.Name):
                yield statement, target.value, value
        elif isinstance(statement, cst.If):
            yield from _bindings(tree.body_of(statement))
            if isinstance(statement.orelse, cst.If):
                yield from _bindings([statement.orelse])
            elif statement.orelse is not None:
                yield from _bindings(tree.body_of(statement.orelse))


def _aliases(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> tuple[dict[str, cst.BaseExpression], set[int]]:
    stores = _stores(function)
    loads = Counter(tree.loaded_names(function.body))
    mapping: dict[str, cst.BaseExpression] = {}
    gone: set[int] = set()
    for line, name, value in _bindings(tree.body_of(function)):
        read = set(tree.loaded_names(cst.Expr(value)))
        if stores[name] != 1 or read & mapping.keys():
            continue
        if not all(stores[n] <= 1 for n in read) or (not ours and name in program.read_before):
            continue
        if line.trailing_whitespace.comment is not None and not is_literal(value):
            continue
        if (
            is_literal(value)
            or isinstance(value, cst.Name)
            or (loads[name] <= 1 and (is_path(value) or (ours and _is_test(value))))
            or is_record_of_pure(value, records)
            or (_is_choice(value) and _compared_only(name, function))
        ) and not _stored_through(name, function):
            mapping[name] = value
            gone.add(id(line))
    return mapping, gone


def _is_test(value: cst.BaseExpression) -> bool:
    """`a is None`, `not b`: as well read where it is asked."""
    tests = (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation)
    return isinstance(value, tests) and is_pure(value) and len(tree.code(value)) <= LONG_TEST


def _is_choice(value: cst.BaseExpression) -> bool:
    """`"a" if test else "b"`"""
    return (
        isinstance(value, cst.IfExp)
        and is_pure(value.test)
        and is_literal(value.body)
        and is_literal(value.orelse)
    )


def bound_once(function: cst.FunctionDef) -> frozenset[str]:
    """Names, of parameters and locals, that hold one thing for the whole of a call."""
    found = {n for n, count in _stores(function).items() if count == 1}
    return frozenset(found | {"None", "True", "False"})


def choices(function: cst.FunctionDef, steady: frozenset[str]) -> dict[str, cst.BaseExpression]:
    """Locals that are one of two literals by a test of what stays as it is."""
    return {
        name: value
        for _, name, value in _bindings(tree.body_of(function))
        if name in steady
        and _is_choice(value)
        and set(tree.loaded_names(cst.Expr(value))) <= steady
    }


def _compared_only(name: str, function: cst.FunctionDef) -> bool:
    """Whether a name is read for nothing but `name == literal`."""
    compared = {
        id(item.left)
        for item in tree.walk(function.body)
        if isinstance(item, cst.Comparison)
        and len(item.comparisons) == 1
        and isinstance(item.comparisons[0].operator, cst.Equal)
        and is_literal(item.comparisons[0].comparator)
    }
    return all(
        id(item) in compared
        for item in tree.walk_loads(function.body)
        if isinstance(item, cst.Name) and item.value == name
    )


def _stored_through(name: str, function: cst.FunctionDef) -> bool:
    """Whether something is stored into what a name holds, `name.a = ...`, `name[i] = ...`."""
    for item in tree.walk(function.body):
        if isinstance(item, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign)):
            target = item.target
            while isinstance(target, (cst.Attribute, cst.Subscript)):
                target = target.value
                if isinstance(target, cst.Name) and target.value == name:
                    return True
    return False


def _without(statements: Iterable[Any], gone: set[int]) -> list[Any]:
    """Statements without these lines; their comments go above what follows."""
    out: list[Any] = []
    words: list[cst.EmptyLine] = []
    for statement in statements:
        if id(statement) in gone:
            words += [x for x in statement.leading_lines if x.comment is not None]
            continue

        def inside(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                body = _without(child.body, gone)
                return child if len(body) == len(child.body) and all(
                    a is b for a, b in zip(body, child.body, strict=True)
                ) else child.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])
            return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

        if not isinstance(statement, cst.SimpleStatementLine):
            statement = tree.rebuild(statement, inside)
        if words and hasattr(statement, "leading_lines"):
            statement = statement.with_changes(leading_lines=[*words, *statement.leading_lines])
            words = []
        out.append(statement)
    return out


def _split_tuples(function: cst.FunctionDef, program: Program, ours: bool) -> cst.FunctionDef:
    """`a, b = x, y` loses each pair that binds a literal, itself, or what nothing reads."""
    loads = set(tree.loaded_names(function.body))
    stores = _stores(function)

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            body: list[Any] = []
            for statement in node.body:
                body += split(statement)
            same = len(body) == len(node.body) and all(
                a is b for a, b in zip(body, node.body, strict=True)
            )
            return node if same else node.with_changes(body=body)
        if isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement)):
            return node
        return tree.rebuild(node, change)

    def split(statement: Any) -> list[Any]:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return [change(statement)]
        small = statement.body[0]
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return [statement]
        target, value = small.targets[0].target, small.value
        if isinstance(target, cst.Name) and isinstance(value, cst.Name):
            return [] if target.value == value.value else [statement]
        if isinstance(target, cst.Tuple) and ours and is_pure(value):
            if not tree.stored_names(small) & loads and not isinstance(value, cst.Tuple):
                return []
        if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
            return [statement]
        if len(target.elements) != len(value.elements):
            return [statement]
        pairs = [(t.value, v.value) for t, v in zip(target.elements, value.elements, strict=True)]
        stored = {t.value for t, _ in pairs if isinstance(t, cst.Name)}
        kept: list[Any] = []
        lines: list[Any] = []
        for one, part in pairs:
            name = one.value if isinstance(one, cst.Name) else None
            if name is None or not is_pure(part) or (not ours and name in program.read_before):
                kept.append((one, part))
            elif isinstance(part, cst.Name) and part.value == name:
                continue
            elif name not in loads:
                continue
            elif stores[name] == 1 and not set(tree.loaded_names(cst.Expr(part))) & stored and (
                is_literal(part) or is_path(part)
            ) and all(stores[n] <= 1 for n in tree.loaded_names(cst.Expr(part))):
                lines.append(_line(name, part))
            else:
                kept.append((one, part))
        if len(kept) == len(pairs) or (lines and not _worth(lines, kept)):
            return [statement]
        if len(kept) > 1:
            new = small.with_changes(
                targets=[cst.AssignTarget(cst.Tuple([cst.Element(t) for t, _ in kept], [], []))],
                value=cst.Tuple([cst.Element(v) for _, v in kept], [], []),
            )
            lines.append(statement.with_changes(body=[new], leading_lines=[]))
        elif kept:
            new = small.with_changes(targets=[cst.AssignTarget(kept[0][0])], value=kept[0][1])
            lines.append(statement.with_changes(body=[new], leading_lines=[]))
        return tree.with_leading(lines, list(statement.leading_lines))

    def _worth(lines: list[Any], kept: list[Any]) -> bool:
        return not kept or any(is_literal(line.body[0].value) for line in lines)

    return tree.rebuild(function, lambda c: change(c) if isinstance(c, cst.IndentedBlock) else c)


def _literals_on(function: cst.FunctionDef) -> cst.FunctionDef:
    """`x = None` reaches what follows in its block, up to where `x` is bound anew."""

    def block(statements: Any, outermost: bool) -> list[Any]:
        body = [statement(s) for s in statements]
        for position, line in enumerate(body):
            bound = list(_bindings([line])) if isinstance(line, cst.SimpleStatementLine) else []
            if len(bound) != 1 or not is_literal(bound[0][2]):
                continue
            _, name, value = bound[0]
            rest, ended = _carried_on(name, value, body[position + 1 :])
            if ended:
                return [*body[:position], *block(rest, outermost)]
            body = [*body[: position + 1], *rest]
        return body

    def statement(node: Any) -> Any:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.SimpleStatementLine)):
            return node
        return tree.rebuild(node, inside)

    def inside(child: Any) -> Any:
        if isinstance(child, cst.IndentedBlock):
            body = block(child.body, False)
            same = len(body) == len(child.body) and all(
                a is b for a, b in zip(body, child.body, strict=True)
            )
            return child if same else child.with_changes(body=body)
        return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

    old = tree.body_of(function)
    body = block(old, True)
    same = len(body) == len(old) and all(a is b for a, b in zip(body, old, strict=True))
    return function if same else tree.with_body(function, body)


def _carried_on(
    name: str, value: cst.BaseExpression, statements: list[Any]
) -> tuple[list[Any], bool]:
    """The statements with a name's literal put in, and whether they bind it anew before its end."""
    out: list[Any] = []
    for position, statement in enumerate(statements):
        if name not in tree.stored_names(statement) and not isinstance(
            statement, (cst.FunctionDef, cst.ClassDef)
        ):
            out.append(substituted(statement, {name: value}))
            continue
        rest = statements[position + 1 :]
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            small = statement.body[0]
            if isinstance(small, cst.Assign):
                new = small.with_changes(value=substituted(small.value, {name: value}))
                line = statement if new.value is small.value else statement.with_changes(body=[new])
                return [*out, line, *rest], True
        if isinstance(statement, cst.If):
            test = substituted(statement.test, {name: value})
            statement = statement if test is statement.test else statement.with_changes(test=test)
        return [*out, statement, *rest], False
    return out, False


def _line(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], value)])


def _spread_records(
    function: cst.FunctionDef, program: Program, records: frozenset[str]
) -> cst.FunctionDef:
    """`r = Record(a, f(b))`, of which only fields are read, becomes a name for each field."""
    stores = _stores(function)
    taken = set(stores) | set(tree.loaded_names(function.body))
    for line, name, value in _bindings(tree.body_of(function)):
        if stores[name] != 1 or not isinstance(value, cst.Call):
            continue
        owner = tree.dotted(value.func)
        if owner not in records or _used_whole(name, function):
            continue
        fields = program.fields(owner)
        given = tree.arguments_by_name(value, list(fields))
        if given is None:
            continue
        reads = _fields_read(name, function)
        values: dict[str, cst.BaseExpression] = {}
        lines: list[Any] = []
        clash = False
        for field_name in fields:
            part = given.get(field_name, fields[field_name].value)
            if part is None:
                clash = True
                break
            names = set(tree.loaded_names(cst.Expr(part)))
            if field_name not in reads and is_harmless(part, records):
                continue
            stable = all(stores[n] <= 1 for n in names)
            if is_literal(part) or (is_path(part) and stable):
                values[field_name] = part
            elif isinstance(part, cst.Name) and part.value == field_name:
                clash = True
                break
            else:
                clash |= field_name in taken
                lines.append(_line(field_name, part))
                values[field_name] = cst.Name(field_name)
        if clash:
            continue
        return _fields_named(function, line, name, values, lines)
    return function


def _used_whole(name: str, function: cst.FunctionDef) -> bool:
    """Whether a name is read other than for a field."""
    inside = {
        id(item.value)
        for item in tree.walk(function.body)
        if isinstance(item, cst.Attribute) and isinstance(item.value, cst.Name)
    }
    return any(
        isinstance(item, cst.Name) and item.value == name and id(item) not in inside
        for item in tree.walk_loads(function.body)
    ) or _stored_through(name, function)


def _fields_read(name: str, function: cst.FunctionDef) -> set[str]:
    return {
        item.attr.value
        for item in tree.walk(function.body)
        if isinstance(item, cst.Attribute)
        and isinstance(item.value, cst.Name)
        and item.value.value == name
    }


def _fields_named(
    function: cst.FunctionDef,
    line: Any,
    name: str,
    values: dict[str, cst.BaseExpression],
    lines: list[Any],
) -> cst.FunctionDef:
    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if (
            isinstance(node, cst.Attribute)
            and isinstance(node.value, cst.Name)
            and node.value.value == name
        ):
            return tree.parenthesised(values[node.attr.value])
        return None

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            body: list[Any] = []
            for statement in node.body:
                if statement is line:
                    body += tree.with_leading(lines, list(line.leading_lines))
                else:
                    body.append(change(statement))
            return node.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])
        if isinstance(node, cst.BaseExpression):
            return tree.replace(node, swap)
        return tree.rebuild(node, change)

    result: cst.FunctionDef = change(function)
    return result


def _drop_unread(
    function: cst.FunctionDef, program: Program, records: frozenset[str], ours: bool
) -> cst.FunctionDef:
    loads = set(tree.loaded_names(function.body))
    gone = {
        id(line)
        for line, name, value in _bindings(tree.body_of(function))
        if name not in loads
        and (ours or name in program.read_before)
        and is_harmless(value, records)
    }
    if not gone:
        return function
    return tree.with_body(function, _without(tree.body_of(function), gone))


def _join_adjacent(function: cst.FunctionDef, program: Program, ours: bool) -> cst.FunctionDef:
    """`a = f(x)` and then `b = a`, or a short `a = ...` that the next line begins with."""
    loads = Counter(tree.loaded_names(function.body))
    stores = _stores(function)

    def block(statements: Any) -> list[Any]:
        out: list[Any] = []
        for statement in statements:
            joined = together(out[-1], statement) if out else None
            if joined is not None:
                out[-1] = joined
            else:
                out.append(
                    statement
                    if isinstance(statement, (cst.SimpleStatementLine, cst.FunctionDef))
                    else tree.rebuild(statement, inside)
                )
        return out

    def inside(child: Any) -> Any:
        if isinstance(child, cst.IndentedBlock):
            body = block(child.body)
            return child if len(body) == len(child.body) and all(
                a is b for a, b in zip(body, child.body, strict=True)
            ) else child.with_changes(body=body)
        return child if isinstance(child, cst.BaseExpression) else tree.rebuild(child, inside)

    def together(first: Any, second: Any) -> Any:
        bound = list(_bindings([first])) if isinstance(first, cst.SimpleStatementLine) else []
        if len(bound) != 1 or not isinstance(second, cst.SimpleStatementLine):
            return None
        _, name, value = bound[0]
        small = second.body[0]
        if loads[name] != 1 or stores[name] != 1 or len(second.body) != 1:
            return None
        if not ours and name in program.read_before:
            return None
        if name not in tree.loaded_names(second) or any(
            x.comment for x in second.leading_lines
        ):
            return None
        whole = isinstance(small, cst.Assign) and isinstance(small.value, cst.Name)
        trailing = second.trailing_whitespace
        if first.trailing_whitespace.comment is not None:
            if not whole or trailing.comment is not None:
                return None
            trailing = first.trailing_whitespace
        if not whole:
            if not isinstance(small, (cst.Assign, cst.Return)):
                return None
            width, rest = len(tree.code(value)), len(tree.code(small))
            short = width <= SHORT_VALUE or (width <= 2 * SHORT_VALUE and width + rest <= 90)
            short &= not isinstance(value, cst.Tuple)
            calls = any(
                isinstance(i, cst.Call)
                and tree.dotted(i.func) in program.statements.keys() | program.pending.keys()
                for i in tree.walk(value)
            )
            first_of_all = is_pure(value) or _comes_first(small.value, name)
            if not short or calls or not first_of_all:
                return None
        return second.with_changes(
            leading_lines=first.leading_lines,
            body=[substituted(small, {name: value})],
            trailing_whitespace=trailing,
        )

    body = block(tree.body_of(function))
    same = len(body) == len(tree.body_of(function))
    changed = not same or any(a is not b for a, b in zip(body, tree.body_of(function), strict=True))
    return tree.with_body(function, body) if changed else function


def _comes_first(value: Any, name: str) -> bool:
    """Whether nothing that acts is evaluated before a name."""
    for node in in_evaluation_order(value):
        if isinstance(node, cst.Name) and node.value == name:
            return True
        if not is_pure(node):
            return False
    return False


def renamed_local(function: cst.FunctionDef, old: str, new: str) -> cst.FunctionDef:
    """The function with a local or parameter under another name, where that is free."""
    taken = set(_stores(function)) | set(tree.loaded_names(function.body))
    if old not in taken or new in taken:
        return function
    result: cst.FunctionDef = renamed_everywhere(function, {old: new})
    return result
