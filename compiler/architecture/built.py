"""A page's model on the meta device, before it runs."""

from __future__ import annotations

import dataclasses
import inspect
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from specc.runtime import Mesh

from ..diagnostics import fail
from ..validate.failure import ValidationError, reason
from ..validate.op_log import OpLog
from ..validate.page_module import page_module
from .init_on_meta import init_noted


def build(
    page: Any, name: str, mesh: Mesh, log: AbstractContextManager[Any] | None = None
) -> tuple[nn.Module, Any]:
    """The model of a page's module for one rank of a mesh, on the meta device, and its config.

    A page that needs no specc takes neither mesh nor device. Its constructors run in `log`. Raises
    SpecError (SP645).
    """
    make = page.build_model
    parameters = inspect.signature(make).parameters
    given: dict[str, Any] = {"mesh": mesh, "device": "meta"}
    try:
        device = nullcontext() if "device" in parameters else torch.device("meta")
        noted = init_noted(log, vars(page)) if isinstance(log, OpLog) else nullcontext()
        with device, noted, log or nullcontext():
            model = make(**{n: v for n, v in given.items() if n in parameters})
    except Exception as error:
        where = line_of(error, page.__name__)
        fail(
            "SP645",
            f"the model of `{name}` cannot be built{where}: {told(error)}",
            help="its `build_model(mesh)` has to give the model on the device `meta`, without "
            "values",
        )
    if not isinstance(model, nn.Module):
        fail(
            "SP645",
            f"`build_model` of `{name}` gives a {type(model).__name__}, and no module",
            help="let it return the model, an `nn.Module`",
        )
    default = parameters["config"].default if "config" in parameters else None
    return model, default if dataclasses.is_dataclass(default) else None


@contextmanager
def opened_page(text: str, name: str) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            page = stack.enter_context(page_module(text))
        except ValidationError as error:
            why = error.diagnostics[0].message.removeprefix("the page cannot be imported: ")
            fail(
                "SP644",
                f"`{name}` is no page that runs: {why}",
                help="a page is a Python file that can be imported and has a `build_model(mesh)`",
            )
        if not callable(getattr(page, "build_model", None)):
            fail(
                "SP644",
                f"`{name}` is no page: it has no `build_model`",
                help="a page is a Python file that can be imported and has a `build_model(mesh)`",
            )
        yield page


def told(error: Exception) -> str:
    """An exception in one line; a bare name of one is a name."""
    text = reason(error)
    return text if ": " in text else f"`{text}`"


def line_of(error: Exception, page_name: str) -> str:
    """The line of the page that an exception comes from, as words."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == f"<{page_name}>"]
    return f" (line {lines[-1]})" if lines else ""
