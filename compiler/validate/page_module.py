"""A page's text as a module, without a file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any

from .failure import differ, reason

_numbers = itertools.count()


@contextmanager
def page_module(text: str) -> Iterator[Any]:
    """Runs the text; the module has the page's `build_model` and, where it has one, `Config`.

    It is among `sys.modules` meanwhile: dataclasses look there. What it prints goes to stderr.
    Raises ValidationError where the text does not run.
    """
    module = ModuleType(f"_specc_validated_page_{next(_numbers)}")
    with redirect_stdout(sys.stderr), _among_modules(module):
        try:
            exec(compile(text, f"<{module.__name__}>", "exec", dont_inherit=True), vars(module))
        except Exception as error:
            differ("SP505", f"the page cannot be imported: {reason(error)}")
        yield module


@contextmanager
def _among_modules(module: ModuleType) -> Iterator[None]:
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]
