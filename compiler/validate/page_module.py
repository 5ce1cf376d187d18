"""A page's text as a module, without a file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from .failure import differ, reason

_numbers = itertools.count()


@contextmanager
def page_module(text: str) -> Iterator[Any]:
    """Runs the text; the module has the page's `build_model` and, where it has one, `Config`.

    It is among `sys.modules` meanwhile: dataclasses look there. Raises ValidationError where the
    text does not run.
    """
    module = ModuleType(f"_specc_validated_page_{next(_numbers)}")
    sys.modules[module.__name__] = module
    try:
        try:
            exec(compile(text, f"<{module.__name__}>", "exec", dont_inherit=True), vars(module))
        except Exception as error:
            differ("SP505", f"the page cannot be imported: {reason(error)}")
        yield module
    finally:
        del sys.modules[module.__name__]
