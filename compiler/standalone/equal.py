"""Equal: a standalone page gives the page's numbers, bit for bit, or it is refused."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from specc.runtime import Mesh
from specc.runtime.reduced import narrow_only, small

from ..errors import CompileError, refuse
from ..validate.failure import reason
from ..validate.inputs import differentiated, make_inputs
from ..validate.page_module import page_module

LIMIT = 30_000_000  # parameters of a copy: its values take about a second
SEED = 1
_DTYPES = (torch.float32, torch.bfloat16)


def refuse_different(page_text: str, text: str, name: str) -> None:
    """Raise a CompileError where the standalone `text` and the page differ in one process.

    On the smallest copy of the page's config that runs: outputs and the gradients of the loss with
    the same weights, loaded by name, in float32 and in bfloat16.
    """
    refused: list[str] = []
    with page_module(page_text) as page, page_module(text) as alone:
        for config in _configs(page):
            try:
                expected = _numbers(page, config)
            except Exception as error:
                refused.append(reason(error))
                continue
            found = _told(partial(_of_alone, alone, config, expected), name)
            for (what, theirs), (_, ours) in zip(expected.values, found, strict=True):
                if not _equal(theirs, ours):
                    refuse(
                        "SP684",
                        f"the standalone page of `{name}` gives another {what} than the page",
                        note="this is a mistake of specc's: nothing was written",
                    )
            return
    reasons = "; ".join(dict.fromkeys(refused)) or "it has no config"
    refuse(
        "SP685",
        f"no copy of `{name}` that is small enough runs, so nothing says that a standalone page is "
        f"equal: {reasons}",
        help="make the numbers in its Config smaller; the standalone page is the same but for them",
    )


@dataclasses.dataclass
class _Numbers:
    state: dict[str, Tensor]
    inputs: Any
    values: list[tuple[str, Any]]
    dtypes: list[torch.dtype] = dataclasses.field(default_factory=list)


def _configs(page: Any) -> Iterator[Any]:
    """Configs to try, the smallest first; None where the page has none."""
    made = getattr(page, "Config", None)
    if made is None:
        yield None
        return
    whole = made()
    ways: tuple[Callable[[], Any], ...] = (
        lambda: small([whole], layers=True)[0],
        lambda: small([whole], layers=False)[0],
        lambda: narrow_only([whole], layers=True)[0],
        lambda: whole,
    )
    tried: list[Any] = []
    for shrink in ways:
        try:
            config = shrink()
        except Exception:  # the config's own rules
            continue
        if config not in tried:
            tried.append(config)
            yield config


def _numbers(page: Any, config: Any) -> _Numbers:
    args = () if config is None else (config,)
    meta = page.build_model(Mesh.single(), *args, device="meta")
    count = sum(p.numel() for p in meta.parameters())
    if count > LIMIT:
        raise ValueError(f"{count:,} parameters are more than {LIMIT:,}")
    model = page.build_model(Mesh.single(), *args, seed=SEED)
    inputs = make_inputs(model, [config] if config is not None else [], "cpu")
    state = {n: t.clone() for n, t in model.state_dict().items()}
    found = _Numbers(state, inputs, [])
    for dtype in _DTYPES:
        model = page.build_model(Mesh.single(dtype), *args, seed=SEED)
        try:
            values = _run(model, inputs, dtype)
        except Exception:
            if dtype == torch.float32:
                raise
            continue  # code of the page's author that knows float32 alone
        found.values += values
        found.dtypes.append(dtype)
    return found


def _of_alone(alone: Any, config: Any, expected: _Numbers) -> list[tuple[str, Any]]:
    args: tuple[Any, ...] = ()
    if config is not None and hasattr(alone, "Config"):
        values = {f.name: getattr(config, f.name) for f in dataclasses.fields(alone.Config)}
        args = (alone.Config(**values),)
    found: list[tuple[str, Any]] = []
    for dtype in expected.dtypes:
        takes_dtype = "dtype" in inspect.signature(alone.build_model).parameters
        options = {"dtype": dtype} if takes_dtype else {}
        model = alone.build_model(*args, **options)
        model.load_state_dict(expected.state)
        found += _run(model, expected.inputs, dtype)
    return found


def _run(model: nn.Module, inputs: Any, dtype: torch.dtype) -> list[tuple[str, Any]]:
    """What a model gives in eval mode, where nothing is drawn, and the gradients of the last."""
    model.eval()
    shown = str(dtype).removeprefix("torch.")
    found: list[tuple[str, Any]] = []
    output: Any = None
    for name, given in inputs.evals.items():
        output = model(**given)
        found.append((f"output ({name}, {shown})", output))
    differentiated(output).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        found.append((f"gradient of `{name}` ({shown})", parameter.grad))
    return found


def _told(run: Callable[[], Any], name: str) -> Any:
    try:
        return run()
    except CompileError:
        raise
    except Exception as error:
        refuse(
            "SP684",
            f"the standalone page of `{name}` does not run where the page does",
            note=f"{reason(error)}; this is a mistake of specc's, or of code on the page that asks "
            "for the mesh in a way that is not seen: nothing was written",
        )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape
        return same and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a is None and b is None
