"""Words: what comments and docstrings say of several processes goes, clause by clause.

    # gathers the positions over tp: [b, s, n * 3 * d]      # [b, s, n * 3 * d]
    # Rows go head by head, [query | key]; any tp cuts      # Rows go head by head, [query | key].
    #   between them.

What an author says of other things stays as it is written, and so does all that stands in code
which a page's header names as its author's.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from typing import Any

import libcst as cst

from .. import tree
from .program import Program

_SPEAKS = re.compile(
    r"(?<![-\w])(?:tp|cp|dp|ep|pp|ranks?|rank's|mesh(?:'s)?|layouts?|FSDP|collectives?|all-gather|"
    r"all-reduce|reduce-scatter|sequence parallel|context parallel|processes|one process|"
    r"materialize|``?starts|documents?|t = s|set_dropout_step)(?![-\w])"
)
_PHRASES = re.compile(r" (?:on this rank|of this rank|on every rank)(?=[,.;:)\s]|$)")
_CLAUSES = re.compile(r"(?<=[;:]) |(?<=\.) (?=[A-Z`\"'(\d])|,(?= so that | of which | which )")
_SHAPE = re.compile(r"\[b, [^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]")
_ONLY_SHAPE = re.compile(r"\[b, [^\]]*\]\.?")
_ONLY_SHAPES = re.compile(r"\[[^\]]*\](?: -> \[[^\]]*\])?\.?")
# Sentences of the runtime's docstrings that a model written by hand has none of.
_OF_THE_RUNTIME = re.compile(r"^(?:Raises|Saves|Saved|Backward:|Beside x)\b")
MARGIN = 100


def alone(text: str) -> str:
    """A line of words as it is said of one process; empty where nothing is left to say."""
    if not (_SPEAKS.search(text) or _PHRASES.search(text) or "[b, t" in text):
        return text
    text = _SHAPE.sub(lambda m: re.sub(r"\bt\b", "s", m[0]), text)
    text = _PHRASES.sub("", text)
    pieces = _CLAUSES.split(text)
    kept = [p for p in pieces if not _SPEAKS.search(_without_shapes(p))]
    if len(kept) == len(pieces):
        return text
    found = " ".join(p.strip() for p in kept).rstrip(" ;:,")
    if found and text.rstrip().endswith(".") and not found.endswith("."):
        found += "" if _ONLY_SHAPE.fullmatch(found) else "."
    return found.rstrip(".") if _ONLY_SHAPE.fullmatch(found) else found


def _without_shapes(text: str) -> str:
    return _SHAPE.sub("", text)


def with_words_alone(program: Program, authored: Collection[str] = ()) -> None:
    """Every comment and docstring as it is said of one process, in place; those of `authored`
    classes and functions as they are."""
    program.docstring = _module_docstring(program.docstring)
    for name, statement in list(program.statements.items()):
        if name in authored:
            continue
        ours = name in program.ours
        statement = _docstrings(statement, program, ours)
        program.statements[name] = _comments(statement)


# -------------------------------------------------------------------- comments


def _comments(node: Any) -> Any:
    if isinstance(node, cst.IndentedBlock):
        body = [_with_shape_behind(_comments(s)) for s in node.body]
        return node.with_changes(body=body, header=_trailing(node.header), footer=[])
    if isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement)):
        return _comments_inside(node)
    changes: dict[str, Any] = {}
    for name in ("leading_lines", "lines_after_decorators"):
        lines = getattr(node, name, None)
        if lines:
            changes[name] = _lines(lines)
    if isinstance(getattr(node, "trailing_whitespace", None), cst.TrailingWhitespace):
        changes["trailing_whitespace"] = _trailing(node.trailing_whitespace)
    node = node.with_changes(**changes) if changes else node
    return tree.rebuild(node, _comments)


def _comments_inside(node: Any) -> Any:
    """Comments between the lines of one expression."""
    if "#" not in tree.code(node):
        return node

    class Inside(cst.CSTTransformer):
        def leave_TrailingWhitespace(self, original: Any, updated: Any) -> Any:
            return _trailing(updated)

    return node.visit(Inside())


def _trailing(space: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    if space.comment is None or "type: ignore" in space.comment.value:
        return space.with_changes(comment=None) if space.comment is not None else space
    words = alone(space.comment.value.lstrip("# "))
    if words == space.comment.value.lstrip("# "):
        return space
    return space.with_changes(comment=cst.Comment(f"# {words}") if words else None)


def _lines(lines: Any) -> list[cst.EmptyLine]:
    """Comment lines above a statement: those of one paragraph are read as one text."""
    out: list[cst.EmptyLine] = []
    run: list[cst.EmptyLine] = []

    def close() -> None:
        if not run:
            return
        text = " ".join(line.comment.value.lstrip("# ") for line in run if line.comment)
        words = alone(text)
        if words == text:
            out.extend(run)
        elif words:
            wrapped = textwrap.wrap(words, MARGIN - 10)
            out.extend(run[0].with_changes(comment=cst.Comment(f"# {w}")) for w in wrapped)
        run.clear()

    for line in lines:
        if line.comment is None:
            close()
            out.append(line)
        else:
            run.append(line)
    close()
    return out


def _with_shape_behind(statement: Any) -> Any:
    """A line that says no more than a shape stands behind the statement that it is of."""
    if not isinstance(statement, cst.SimpleStatementLine) or not statement.leading_lines:
        return statement
    last = statement.leading_lines[-1].comment
    if last is None or not _ONLY_SHAPE.fullmatch(last.value.lstrip("# ")):
        return statement
    if statement.trailing_whitespace.comment is not None:
        return statement
    comment = cst.Comment(last.value.rstrip("."))
    space = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), comment)
    return statement.with_changes(
        leading_lines=statement.leading_lines[:-1], trailing_whitespace=space
    )


# -------------------------------------------------------------------- docstrings


def _docstrings(node: Any, program: Program, ours: bool) -> Any:
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        body = [_docstrings(s, program, ours) for s in tree.body_of(node)]
        string = tree.docstring_of(body)
        if string is not None:
            words = _of_runtime(string.raw_value, node) if ours else _of_page(string.raw_value)
            if words:
                line = body[0].with_changes(
                    body=[cst.Expr(cst.SimpleString(f'{string.prefix}"""{words}"""'))]
                )
                body = [line, *body[1:]]
            else:
                body = body[1:] or [cst.SimpleStatementLine([cst.Pass()])]
                body[0] = _without_blank(body[0])
        return tree.with_body(node, body)
    return node


def _without_blank(statement: Any) -> Any:
    lines = [line for line in statement.leading_lines if line.comment is not None]
    return statement.with_changes(leading_lines=lines)


def _of_page(text: str) -> str:
    """A docstring of the page: lines that say nothing of several processes stay as they are."""
    if not _SPEAKS.search(text) and "[b, t" not in text:
        return text
    lines = [alone(line.strip()) and (line if alone(line.strip()) == line.strip() else
             line[: len(line) - len(line.lstrip())] + alone(line.strip()))
             for line in text.split("\n")]  # fmt: skip
    old = text.split("\n")
    kept = [new for new, before in zip(lines, old, strict=True) if new or not before.strip()]
    return "\n".join(kept).strip() if any(line.strip() for line in kept) else ""


def _of_runtime(text: str, node: Any) -> str:
    """A docstring of the runtime: its first paragraph, in one process's words."""
    first = " ".join(textwrap.dedent(text).strip().split("\n\n")[0].split())
    words = alone(first)
    sentences = [s for s in re.split(r"(?<=\.) ", words) if not _OF_THE_RUNTIME.match(s)]
    read = set(tree.loaded_names(node)) | {p.name.value for p in _parameters(node)}
    read |= tree.stored_names(node) | {
        i.attr.value for i in tree.walk(node) if isinstance(i, cst.Attribute)
    }
    named = re.compile(r"``(\w+)``")
    kept = [s for s in sentences if all(n in read for n in named.findall(s))]
    words = re.sub(r"``", "", " ".join(kept))
    params = _parameters(node)
    indent = 8 if params and params[0].name.value == "self" else 4
    if _ONLY_SHAPES.fullmatch(words):
        return ""
    lines = textwrap.wrap(words, MARGIN - indent - 6)
    if len(lines) < 2:
        return words
    return "\n".join([lines[0], *(" " * indent + w for w in lines[1:]), " " * indent])


def _parameters(node: Any) -> list[cst.Param]:
    return tree.every_parameter(node) if isinstance(node, cst.FunctionDef) else []


def _module_docstring(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    out: list[str] = []
    for paragraph in paragraphs:
        if not (_SPEAKS.search(paragraph) or _PHRASES.search(paragraph)):
            out.append(paragraph)
            continue
        words = _legend(" ".join(paragraph.split()))
        if words:
            out.append("\n".join(textwrap.wrap(words, MARGIN)))
    found = "\n\n".join(out)
    return f"{found}\n" if "\n" in found else found


def _legend(text: str) -> str:
    """The list of letters of a page, and other words that read like it: clause by clause."""
    text = _PHRASES.sub("", text)
    out: list[str] = []
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", text):
        parts = [
            ", ".join(c for c in part.split(", ") if not _SPEAKS.search(c))
            for part in sentence.rstrip(".").split("; ")
        ]
        whole = "; ".join(p for p in parts if p)
        if whole:
            out.append(f"{whole}.")
    return " ".join(out)
