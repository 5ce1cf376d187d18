"""A config field's value from text, by the field's annotation: for `--set` and for YAML."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin

import torch

NONE_WORDS = frozenset({"None", "none", "null", "~"})
BOOLEANS = {"true": True, "false": False}


def parse_as(annotation: Any, text: str) -> Any:
    """`text` as a value of the annotated type.

    Raises `ValueError` with what would be right ("a whole number or None").
    """
    for option in _options(annotation):
        try:
            return _parse_one(option, text.strip())
        except ValueError:
            continue
    raise ValueError(describe(annotation))


def parse_items(annotation: Any, texts: Sequence[str]) -> Any:
    """Several texts as the tuple or list that the annotation allows. Raises as `parse_as`."""
    for option in _options(annotation):
        if get_origin(option) in (tuple, list, Sequence):
            try:
                return _parse_sequence(option, texts)
            except ValueError:
                continue
    raise ValueError(describe(annotation))


def describe(annotation: Any) -> str:
    """What an annotation takes, in words: "a number", "one of `rope`, `none`", ..."""
    words = [_describe_one(option) for option in _options(annotation)]
    return " or ".join(dict.fromkeys(words))


def _options(annotation: Any) -> list[Any]:
    """The members of a union, text last: it would take anything."""
    if get_origin(annotation) in (Union, types.UnionType):
        return sorted(get_args(annotation), key=lambda option: (option is str, option is float))
    return [annotation]


def _parse_one(option: Any, text: str) -> Any:
    if option is type(None):
        if text in NONE_WORDS:
            return None
    elif option is bool:
        if text.lower() in BOOLEANS:
            return BOOLEANS[text.lower()]
    elif option in (int, float):
        return option(text)
    elif option is str:
        return text
    elif option is torch.dtype:
        dtype = getattr(torch, text.removeprefix("torch."), None)
        if isinstance(dtype, torch.dtype):
            return dtype
    elif get_origin(option) is Literal:
        for value in get_args(option):
            if str(value) == text:
                return value
    elif isinstance(option, type) and issubclass(option, enum.Enum):
        for member in option:
            if text in (member.name, str(member.value)):
                return member
    elif get_origin(option) in (tuple, list, Sequence):
        texts = [part for part in text.strip("()[]").split(",") if part.strip()]
        return _parse_sequence(option, texts)
    raise ValueError(text)


def _parse_sequence(option: Any, texts: Sequence[str]) -> Any:
    kinds = get_args(option) or (str,)
    if get_origin(option) is tuple and kinds[-1] is not Ellipsis:
        if len(kinds) != len(texts):
            raise ValueError(texts)
        return tuple(parse_as(kind, text) for kind, text in zip(kinds, texts, strict=True))
    items = [parse_as(kinds[0], text) for text in texts]
    return items if get_origin(option) is list else tuple(items)


def _describe_one(option: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if option is type(None):
        return "None"
    if option in names:
        return names[option]
    if option is torch.dtype:
        return "a torch dtype such as bfloat16"
    if get_origin(option) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in get_args(option))
    if isinstance(option, type) and issubclass(option, enum.Enum):
        return "one of " + ", ".join(f"`{member.name}`" for member in option)
    if get_origin(option) in (tuple, list, Sequence):
        kinds = [kind for kind in get_args(option) if kind is not Ellipsis]
        if get_origin(option) is tuple and len(kinds) == len(get_args(option)):
            return "several, with commas: " + ", ".join(describe(kind) for kind in kinds)
        return "several, with commas, each " + describe(kinds[0] if kinds else str)
    name = option.__name__ if isinstance(option, type) else str(option)
    return f"a {name}, which only a Python spec can give"
